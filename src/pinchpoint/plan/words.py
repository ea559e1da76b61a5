"""Four-letter English words for text prompts.

All of one width, so that a place in a text is a place among its words. Each is one token, first in a text or after a
space, for the tokenizers of GPT-2, cl100k, o200k, Llama 2 and Llama 3 (tried, 2026). Whether it is for the endpoint's is
measured, not assumed.
"""

from __future__ import annotations

__all__ = ["WORDS"]

WORDS: list[bytes] = b"""
able also area away baby back ball band bank base bear beat been bell best bill bird blue boat body
book born both burn call camp card care case cast cell chip city club coal coat code cold come cook
cool copy core cost crew dark data date deal deep door down draw drop each east easy edge else even
ever exit face fact fair fall farm fast feed feel file fill film find fine fire fish five flag flat
flow food foot form four free from fuel full fund gain game gate girl give goal gold good gray grow
hair half hall hand hang hard head heat held help here hero high hill hold hole home host hour into
iron item join jump just keep kind king know lake land last late lead left less life lift like line
link list live load lock long look lord loss lost love luck made mail main make male many mark mass
mean meet mind mine miss mode moon more most move much name near neck need news next nice nine note
once only open over pace pack page paid pain pair park part pass past path peak pick pipe plan play
port post pull push race rain rate read real rest rich ride ring rise risk road rock role roll room
root rose rule sale same sand save seat seed seek self sell send ship shop shot show side sign sing
site size skin slow soft sold some song soon sort spot star stay step stop such
""".split()
