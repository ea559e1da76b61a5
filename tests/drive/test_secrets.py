import pytest

from pinchpoint.drive import preflight
from pinchpoint.drive.secrets import look_up
from pinchpoint.errors import PlanError
from pinchpoint.plan.model import Endpoint
from pinchpoint.wire.address import read_address


def test_the_default_key():
    assert look_up(Endpoint(), {"OPENAI_API_KEY": " sk-1234 \n"}).headers == {
        "Authorization": "Bearer sk-1234"
    }
    assert look_up(Endpoint(), {}).headers == {}


def test_a_key_that_is_named_wins_over_the_default(tmp_path):
    (tmp_path / "key").write_text("from-file\n")
    environ = {"OPENAI_API_KEY": "sk-default", "MINE": "from-env"}
    assert look_up(Endpoint(api_key="env:MINE"), environ).headers["Authorization"] == "Bearer from-env"
    assert (
        look_up(Endpoint(api_key=f"file:{tmp_path / 'key'}"), environ).headers["Authorization"]
        == "Bearer from-file"
    )


def test_an_own_authorization_header_is_kept():
    endpoint = Endpoint(headers={"authorization": "env:BASIC", "X-Team": "blue"})
    secrets = look_up(endpoint, {"OPENAI_API_KEY": "sk-default", "BASIC": "Basic dXNlcg=="})
    assert secrets.headers == {"authorization": "Basic dXNlcg==", "X-Team": "blue"}
    assert secrets.scrub("you sent Basic dXNlcg== or dXNlcg==") == "you sent Basic (hidden) or (hidden)"


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        (Endpoint(api_key="env:NOT_THERE"), "NOT_THERE is not set"),
        (Endpoint(api_key="file:/no/such/file"), "cannot be read"),
        (Endpoint(api_key="sk-written-out"), "named, never written out"),
        (Endpoint(api_key="env:TWO_LINES"), "no HTTP header can carry"),
        (Endpoint(headers={"X-Key": "env:NOT_THERE"}), "header X-Key"),
    ],
)
def test_a_secret_that_leads_nowhere(endpoint, words):
    with pytest.raises(PlanError, match=words) as refused:
        look_up(endpoint, {"TWO_LINES": "secret\nsecret"})
    assert "secret" not in str(refused.value)
    assert "sk-written-out" not in str(refused.value)


def test_secrets_do_not_print():
    assert "sk-1234" not in repr(look_up(Endpoint(), {"OPENAI_API_KEY": "sk-1234"}))


@pytest.mark.parametrize(
    ("asked", "streams", "cores", "workers"),
    [
        (None, 8, 64, 1),  # a second process buys nothing for eight streams
        (None, 128, 2, 2),
        (None, 512, 8, 7),  # one core is left for others
        (None, 1, 8, 1),
        (4, 2, 8, 2),  # never more than streams
        (3, 512, 2, 3),  # as asked
    ],
)
def test_how_many_workers(monkeypatch, asked, streams, cores, workers):
    monkeypatch.setattr(preflight, "usable_cores", lambda: cores)
    assert preflight.worker_count(asked, streams) == workers


def test_local_ports(tmp_path, monkeypatch):
    ports = tmp_path / "range"
    ports.write_text("32768\t33767\n")
    monkeypatch.setattr(preflight, "_PORT_RANGE", ports)
    one, two = read_address("http://a:1"), read_address("http://b:1")
    preflight.check_ports(1000, [one])
    preflight.check_ports(2000, [one, two])
    with pytest.raises(PlanError, match="ip_local_port_range"):
        preflight.check_ports(1001, [one])


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("key sk-hostile-SECRET-9876 refused", "key (hidden) refused"),
        ("key sk-hostile-SECRET-98", "key (hidden)"),  # cut within the key
        ("key sk-hostile-SEC; check it", "key (hidden); check it"),  # cut, and words after it
        ("sk-hostisk-hostile-SECRET-9876", "(hidden)(hidden)"),
        ("-hostile-SECRET-9876 was refused", "(hidden) was refused"),  # its beginning cut off
        ("tile-SECRET-98, tile-SEC", "(hidden), (hidden)"),
        ("sk-host is seven characters", "sk-host is seven characters"),
        ("SK-HOSTILE-SECRET-9876 was refused", "(hidden) was refused"),  # a gateway that shouts
        (
            "c2staG9zdGlsZS1TRUNSRVQtOTg3Ng==",
            "(hidden)g==",
        ),  # base64: the last group shares its bits with what follows
        ("Basic dXNlcjpzay1ob3N0aWxlLVNFQ1JFVC05ODc2", "Basic dXNlcjp(hidden)2"),  # … of user:key
        ("c2staG9zdGlsZS1TRUNSRVQtOTg3Ng", "(hidden)g"),
        ("736b2d686f7374696c652d5345435245542d39383736", "(hidden)"),  # hexadecimal
    ],
)
def test_a_secret_is_hidden_as_far_as_it_goes(said, left):
    secrets = look_up(Endpoint(), {"OPENAI_API_KEY": "sk-hostile-SECRET-9876"})
    assert secrets.scrub(said) == left


def test_a_password_is_hidden_without_its_user():
    secrets = look_up(Endpoint(headers={"Authorization": "Basic dXNlcjpwYXNzdzByZCE="}), {})  # user:passw0rd!
    assert (
        secrets.scrub("user said passw0rd!, that is dXNlcjpwYXNzdzByZCE=")
        == "user said (hidden), that is (hidden)"
    )
    odd = look_up(Endpoint(), {"OPENAI_API_KEY": "sk-??>>~~/+key"})
    assert odd.scrub("sk-%3F%3F%3E%3E~~%2F%2Bkey") == "(hidden)"
    assert "Pz8-Pn5-" not in odd.scrub("c2stPz8-Pn5-Lytr")
