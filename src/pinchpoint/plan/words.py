"""Four-letter English words for text prompts.

All of one width, so that a place in a text is a place among its words, and so common that nearly every tokenizer
holds each (with its leading space) as one token. Whether the endpoint's does is measured, not assumed.
"""

from __future__ import annotations

__all__ = ["WORDS"]

WORDS: list[bytes] = b"""
able also area army away baby back ball band bank base bath bear beat been bell best bill bird blue
boat body bomb bond bone book born boss both bowl burn bush busy call calm came camp card care case
cash cast cell chip city club coal coat code cold come cook cool copy core cost crew crop dark data
date dead deal dear debt deep desk diet door down draw drop drug dust duty each earn east easy edge
else even ever exit face fact fair fall farm fast fate fear feed feel feet file fill film find fine
fire firm fish five flag flat flow food foot form four free from fuel full fund gain game gate gift
girl give goal gold golf good gray grew grow hair half hall hand hang hard head hear heat held help
here hero high hill hold hole holy home hope host hour huge hunt idea into iron item join jump jury
just keep kept kill kind king knee know lack lady lake land last late lead left less life lift like
line link list live load loan lock long look lord lose loss lost love luck made mail main make male
many mark mass meal mean meat meet mind mine miss mode mood moon more most move much name near neck
need news next nice nine note okay once only open oral over pace pack page paid pain pair park part
pass past path peak pick pink pipe plan play poem
""".split()
