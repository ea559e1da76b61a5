"""Plans from files, overrides and flags: later ones win; what is wrong is named together with the way out."""

import pytest

from pinchpoint.errors import PlanError
from pinchpoint.plan.ladder import first_rungs
from pinchpoint.plan.model import DEFAULT_PROFILES, Profile
from pinchpoint.plan.read import read_plan


def test_the_default_plan_is_the_documented_one():
    plan = read_plan(flags={"url": ["http://h:8000"]})
    assert plan.profiles == DEFAULT_PROFILES
    assert plan.concurrency == (8, 16, 32, 64, 128)
    assert plan.arrivals.pattern == "closed"
    assert plan.limits.max_error_share == 0.05


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("p.toml", 'url="http://h"\nconcurrency=[1,2]\nprofile={a="10/20"}\n[goodput]\nttft=500\n'),
        ("p.yaml", "url: http://h\nconcurrency: 1,2\nprofile: {a: 10/20}\ngoodput: ttft:500\n"),
        (
            "p.json",
            '{"url":["http://h"],"concurrency":"1,2","profile":["a=10/20"],"goodput":{"ttft_ms":500}}',
        ),
    ],
)
def test_three_file_formats_say_the_same(tmp_path, name, body):
    (tmp_path / name).write_text(body)
    plan = read_plan(tmp_path / name)
    assert plan.profiles == (Profile("a", 10, 20),)
    assert plan.concurrency == (1, 2)
    assert plan.goodput.ttft_ms == 500
    assert plan.endpoint.urls == ("http://h",)


def test_flags_win_over_overrides_win_over_the_file(tmp_path):
    (tmp_path / "p.toml").write_text('model = "file"\nnum-runs = 2\nrandom_seed = 1')
    plan = read_plan(
        tmp_path / "p.toml", ["model=override", "random_seed=2"], {"random_seed": 3, "gpus": None}
    )
    assert (plan.endpoint.model, plan.load.num_runs, plan.seed, plan.gpus) == ("override", 2, 3, None)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"concurrency": "8,x"}, "--concurrency: 'x' is no number"),
        ({"concurrency": "8,,9"}, "--concurrency: '8,,9': nothing stands in a place where a number should"),
        ({"concurrency": "8,"}, "nothing stands in a place"),
        ({"request_rate": "1,,2"}, "nothing stands in a place"),
        ({"concurrency": "0"}, "one or more"),
        ({"concurrency": "-3"}, "one or more"),
        ({"concurrency": "8,16,8"}, "8 is named twice"),
        ({"request_rate": "4,2,4"}, "4 is named twice"),
        ({"profile": ["a=20/10", "a=30/10"]}, "a is named twice, 20/10 and 30/10"),
        ({"profiles": "mixed,mixed"}, "mixed is named twice"),
        ({"profile": ["900/250"]}, "--profile: 900/250 is no profile; write NAME=ISL/OSL"),
        ({"profile.chatty": "800/200"}, "write profile=chatty=ISL/OSL"),
        ({"concurrency": "999999"}, "beyond"),
        ({"profile": ["a=1"]}, "NAME=ISL/OSL"),
        ({"profile": ["../x=1/1"]}, "NAME=ISL/OSL"),
        ({"profiles": "prefil"}, "no profile 'prefil'"),
        ({"request_rate": "-1"}, "above zero"),
        ({"request_rate": "2", "concurrency": "1,2"}, "give one number"),
        ({"arrival_pattern": "gamma"}, "needs --request-rate"),
        ({"duration": "soon"}, "no duration"),
        ({"duration": "0s"}, "longer than zero"),
        ({"max_error_share": "120%"}, "between 0 and 1"),
        ({"goodput": "tfft:5"}, "no limit 'tfft'"),
        ({"header": ["nope"]}, "Name: value"),
        ({"header": ["a: b\r\nc: d"]}, "control character"),
        ({"header": ["Content-Length: 5"]}, "header 'Content-Length' is set by pinchpoint itself"),
        ({"extra_body": "[1]"}, "JSON object"),
        ({"ca_file": "/no/such"}, "No such file"),
        ({"watch_hz": "nan"}, "no finite number"),
        ({"lang": "fr"}, "the report speaks en and ko, not 'fr'"),
        ({"concurency": "8"}, "did you mean concurrency"),
        # So large that planning or holding it would never end.
        ({"num_runs": "1e9"}, "--num-runs: '1e9' is beyond 100,"),
        ({"request_count": "1e30"}, "--request-count: '1e30' is beyond"),
        ({"warmup_request_count": "1e18"}, "--warmup-request-count: '1e18' is beyond"),
        ({"workers": "1000000"}, "--workers: '1000000' is beyond"),
        ({"random_seed": str(2**70)}, "--random-seed: .* is beyond"),
        ({"request_rate": "1e12"}, "between 1e-05 and 1,000,000"),
        ({"request_rate": "1e-300"}, "between 1e-05 and 1,000,000"),
        ({"request_rate": "1e6", "duration": "1h"}, "3,600,000,000 requests in one rung"),
        ({"duration": "99999999999h"}, "longer than"),
        ({"duration": "9" * 400 + "h"}, "longer than"),
        ({"request_rate": "1", "arrival_pattern": "gamma", "burstiness": "1e-300"}, "between 0.001"),
    ],
)
def test_what_is_wrong_is_named(flags, says):
    with pytest.raises(PlanError, match=says):
        read_plan(flags=flags)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"duration": "10s", "request_count": "5"}, "--duration and --request-count"),
        ({"duration": "10s", "requests_per_slot": "5"}, "--duration and --requests-per-slot"),
        ({"request_count": "10", "requests_per_slot": "5"}, "--request-count and --requests-per-slot"),
        ({"request_rate": "1", "requests_per_slot": "5"}, "no slots"),
        ({"request_rate": "1", "no_stagger": True}, "no slots"),
        ({"request_rate": "1", "concurrency": "auto"}, "give one number"),
        ({"request_rate": "1", "concurrency": "5", "max_in_flight": "5"}, "both are the most in flight"),
        ({"request_rate": "1", "burstiness": "2"}, "needs --arrival-pattern gamma"),
        ({"request_rate": "1", "burst_size": "2"}, "needs --arrival-pattern burst"),
        ({"max_in_flight": "5"}, "needs --request-rate or --trace"),
        ({"trace_speed": "5"}, "needs --trace"),
        ({"trace": __file__, "request_rate": "1"}, "its own arrival times"),
        ({"trace": __file__, "arrival_pattern": "gamma"}, "its own arrival times"),
        ({"trace": __file__, "profiles": "mixed"}, "its own lengths"),
        ({"trace": __file__, "duration": "1m"}, "ends with its last request"),
        ({"trace": __file__, "num_runs": "2"}, "replayed once"),
        ({"concurrency": "auto", "num_runs": "2"}, "a climb is made once"),
        ({"auto_max_concurrency": "64"}, "needs --concurrency auto"),
        ({"duration": "10s", "max_requests": "64"}, "not known before"),
    ],
)
def test_what_contradicts_is_refused_and_both_are_named(flags, says):
    with pytest.raises(PlanError, match=says):
        read_plan(flags=flags)


def test_a_key_given_twice_in_one_place_is_refused():
    with pytest.raises(PlanError, match="concurrency is given twice"):
        read_plan(overrides=["concurrency=8", "concurrency=16"])


def test_what_holds_anyway_contradicts_nothing():
    plan = read_plan(flags={"concurrency": "auto", "num_runs": "1", "no_stagger": False})
    assert plan.auto


def test_a_key_given_itself_is_refused_and_not_repeated():
    with pytest.raises(PlanError) as fault:
        read_plan(flags={"api_key": "sk-geheim"})
    assert "geheim" not in str(fault.value)
    assert "env:NAME" in str(fault.value)


def test_a_damaged_file_is_named(tmp_path):
    for name, body in (
        ("p.toml", "a ="),
        ("p.yaml", "a: ["),
        ("p.json", "{"),
        ("p.txt", ""),
        ("q.yaml", "- 1"),
    ):
        (tmp_path / name).write_text(body)
        with pytest.raises(PlanError, match=name):
            read_plan(tmp_path / name)
    (tmp_path / "e.yaml").write_text("a: !!python/object/apply:os.system [echo]")
    with pytest.raises(PlanError, match="python"):
        read_plan(tmp_path / "e.yaml")


def test_commas_inside_a_query_do_not_part_it():
    plan = read_plan(flags={"watch": ['prometheus://h?q=rate(x{a="b",c="d"}[1m])', "nic://"]})
    assert plan.watch == ('prometheus://h?q=rate(x{a="b",c="d"}[1m])', "nic://")


def test_a_trace_is_one_rung_with_its_own_mean_lengths_and_rate(tmp_path):
    trace = tmp_path / "t.jsonl"
    rows = [(0, 100, 10), (1000, 300, 20), (2000, 200, 30)]
    trace.write_text(
        "".join(f'{{"timestamp":{t},"input_length":{i},"output_length":{o}}}\n' for t, i, o in rows)
    )
    plan = read_plan(flags={"trace": str(trace)})
    assert plan.profiles == (Profile("trace", 200, 20),)
    assert plan.arrivals.rates == (1.5,)  # three requests over two seconds
    rung = first_rungs(plan)
    assert [(r.why, r.requests, r.rate) for r in rung] == [("trace", 3, 1.5)]
    with pytest.raises(PlanError, match="leave --profile"):
        read_plan(flags={"trace": str(trace), "profile": ["a=1/1"]})


def test_profiles_of_a_file_and_of_flags_are_driven_together_and_headers_are_merged(tmp_path):
    (tmp_path / "p.toml").write_text(
        'profile = { chatty = "900/250", x = "1/1" }\nheader = { A = "1", B = "2" }\n[goodput]\nttft = 500\n'
    )
    plan = read_plan(
        tmp_path / "p.toml",
        ["profile=y=3/3", "profile=z=4/4"],
        {"profile": ["x=10/10"], "header": ["B: 3"], "goodput": ["tpot:30"]},
    )
    assert plan.profiles == (
        Profile("chatty", 900, 250), Profile("x", 10, 10), Profile("y", 3, 3), Profile("z", 4, 4),
    )  # fmt: skip
    assert plan.endpoint.headers == {"A": "1", "B": "3"}
    assert (plan.goodput.ttft_ms, plan.goodput.tpot_ms) == (500, 30)


def test_a_file_without_an_end_is_no_plan(tmp_path):
    (tmp_path / "plan.toml").symlink_to("/dev/zero")
    with pytest.raises(PlanError, match=r"plan\.toml.*more than 67 MB"):
        read_plan(tmp_path / "plan.toml")


def test_a_key_that_is_there_twice_says_nothing(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('\ufeff{"url": ["http://a:1"], "concurrency": [8], "url": ["http://b:2"]}')
    with pytest.raises(PlanError, match=r"plan.json: 'url' is there twice"):
        read_plan(path, (), {})
    path.write_text('\ufeff{"url": ["http://a:1"]}')  # a byte order mark is none of its text
    assert read_plan(path, (), {}).endpoint.urls == ("http://a:1",)


@pytest.mark.parametrize(
    "text", ["concurrency: 8\nconcurrency: 9\n", "profile: {a: 20/10, b: 30/10}\nprofile: {a: 40/10}\n"]
)
def test_a_key_that_is_there_twice_in_yaml(tmp_path, text):
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(PlanError, match=r"plan\.yaml: .*is there twice"):
        read_plan(tmp_path / "plan.yaml", (), {})
