"""How many requests a rung sends, and what a profile is."""

import pytest

from pinchpoint.plan.model import Profile, Rung


@pytest.mark.parametrize(
    ("rung", "sent"),
    [
        # Four slots: the first answers end apart, three of them are followed by another before the last has ended.
        (Rung(0, Profile("decode", 16, 128), 4, requests=16, warmup=4), 16 + 4 + 3),
        (Rung(0, Profile("decode", 16, 128), 1, requests=6, warmup=1), 6 + 1),
        (Rung(0, Profile("decode", 16, 128), 4, requests=16, warmup=0), 16),
        # An open loop sends what is due, no more.
        (Rung(0, Profile("mixed", 64, 64), None, rate=2.0, requests=60, warmup=2), 62),
        (Rung(0, Profile("mixed", 64, 64), None, rate=2.5, duration_s=3.0, warmup=2), 10),
    ],
)
def test_what_a_rung_sends(rung, sent):
    assert rung.sent == sent


@pytest.mark.parametrize(
    ("name", "isl", "osl", "kind"),
    [
        ("decode", 64, 128, "decode"),
        ("mixed", 64, 2048, "mixed"),
        ("chat", 64, 511, "mixed"),
        ("chat", 64, 512, "decode"),
        ("decode", 64, 1, "prefill"),
        ("prefill", 512, 64, "mixed"),
    ],
)
def test_a_profile_is_what_it_is_called_or_what_its_lengths_say(name, isl, osl, kind):
    assert Profile(name, isl, osl).kind == kind
