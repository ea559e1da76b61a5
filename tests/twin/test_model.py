"""twin.yaml: written and read without loss, refused with the key that is wrong."""

from importlib import resources
from pathlib import Path

import msgspec
import pytest

from pinchpoint.errors import TableError
from pinchpoint.twin.model import Engine, Member, Source, Step, Twin, read_twin, write_twin

TWIN = Twin(
    name="t",
    engine=Engine(policy="prefill_first", ranks=4, kv_tokens=1000),
    step=Step(base_ms=1.5, prefill_token_us=0.25),
    sources={"step.base_ms": Source("fitted", "from a table", 1.0, 2.0)},
    ensemble=[Member(1.0, Engine(), Step(base_ms=2.0))],
    seen={"mixed 1/2": [1, 2]},
)


def test_a_twin_survives_its_file(tmp_path):
    write_twin(TWIN, tmp_path / "twin.yaml")
    assert read_twin(tmp_path / "twin.yaml") == TWIN


def test_the_same_twin_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_twin(TWIN, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


MEMBER = "{weight: WEIGHT, engine: {}, step: {base_ms: 1}, client: {}, protocol: {}}"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("engine: {ranks: 0}\nstep: {base_ms: 1}", "engine.ranks"),
        (f"engine: {{ranks: {10**18}}}\nstep: {{base_ms: 1}}", "engine.ranks is .* 16,384 at most"),
        (
            f"engine: {{tokens_per_step: {10**18}}}\nstep: {{base_ms: 1}}",
            "tokens_per_step must be 1 or more, 64 at most",
        ),
        ("engine: {ranks: 2, ranks: 3}\nstep: {base_ms: 1}", "'ranks' is there twice"),
        ("engine: {policy: magic}", "policy"),
        ("engine: {token_budget: many}", "token_budget"),
        ("step: {base_ms: -1}", "base_ms"),
        ("step: {base_ms: .nan}", "base_ms"),
        ("step: {}", "no cost"),
        ("step: {base_ms: 1, expert_share: 2}", "expert_share"),
        ("wheels: 4", "wheels"),
        ("- a\n- b", "mapping"),
        ("a: [", "YAML"),
        ("!!python/object/apply:os.system ['true']", "YAML"),
        ("schema: 9\nstep: {base_ms: 1}", "schema 9"),
        (
            "step: {base_ms: 1}\nexchange: {dispatch: {network: [{us_per_mb: -5}]}, combine: {}, origin: me}",
            "us_per_mb is -5",
        ),
        (
            "step: {base_ms: 1}\nexchange: {dispatch: {network_error: .nan}, combine: {}, origin: me}",
            "network_error is nan",
        ),
        *(
            (f"step: {{base_ms: 1}}\nensemble: [{MEMBER.replace('WEIGHT', weight)}]", said)
            for weight, said in (
                ("0", "no setting of ensemble has a weight above zero"),
                (".nan", r"ensemble\[0\].weight is nan"),
                ("-1", r"ensemble\[0\].weight is -1"),
                (".inf", r"ensemble\[0\].weight is inf"),
            )
        ),
        (
            f"step: {{base_ms: 1}}\nensemble: [{', '.join([MEMBER.replace('WEIGHT', '1')] * 201)}]",
            "holds 201 settings",
        ),
    ],
)
def test_bad_twins_are_refused_by_name(tmp_path, text, named):
    path = tmp_path / "twin.yaml"
    path.write_text(text)
    with pytest.raises(TableError, match=named):
        read_twin(path)


def test_a_twin_that_is_not_there(tmp_path):
    with pytest.raises(TableError, match="cannot be read"):
        read_twin(tmp_path / "none.yaml")


def test_budgets_in_the_engines_own_flags():
    flags = Engine(token_budget=2048, ranks=8, max_sequences=64).flags()
    assert flags["vllm"] == (
        "--max-num-batched-tokens 2048 --max-num-seqs 64 --data-parallel-size 8 --enable-expert-parallel"
    )
    assert flags["sglang"] == (
        "--chunked-prefill-size 16384 --max-running-requests 512 --dp 8 --enable-dp-attention"
    )


def test_the_shipped_twin_is_readable_and_says_where_its_constants_come_from():
    path = Path(str(resources.files("pinchpoint.twin") / "data" / "reference.yaml"))
    twin = read_twin(path)
    assert {f"step.{field.name}" for field in msgspec.structs.fields(Step)} <= set(twin.sources)
    assert sum(member.weight for member in twin.members()) == pytest.approx(1.0)


def test_a_twin_is_written_into_files_only(tmp_path):
    twin = read_twin("reference")
    for where, named in (("", "no file"), (tmp_path, "no file"), (tmp_path / "none" / "x.yaml", "no folder")):
        with pytest.raises(TableError, match=named):
            write_twin(twin, where)
    (tmp_path / "link.yaml").symlink_to(tmp_path / "real.yaml")
    write_twin(twin, tmp_path / "link.yaml")
    assert (tmp_path / "link.yaml").is_symlink()
    assert read_twin(tmp_path / "real.yaml") == twin
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]
