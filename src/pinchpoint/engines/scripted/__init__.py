"""An OpenAI-compatible endpoint whose every event comes at a known time, with the truth about it kept.

For tests, benchmarks and the load generator's own ceiling. Content is a pure function of the script and the
order of requests; times are what the script says, and what they really were is logged beside it.
"""

from pinchpoint.engines.scripted.script import Reply, Script, Sent, Stall, Steps
from pinchpoint.engines.scripted.start import ScriptedProcess, ScriptedThread

__all__ = ["Reply", "Script", "ScriptedProcess", "ScriptedThread", "Sent", "Stall", "Steps"]
