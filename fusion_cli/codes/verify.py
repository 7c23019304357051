"""Why a fusion that was built is taken back: reason codes FUS4xx."""

from __future__ import annotations

NUMBERS = "FUS401"
SLOWER = "FUS402"
FAILS = "FUS403"
ORIGINAL = "FUS404"
