"""`python -m tests.docs.moving` draws the animated pictures of runs below docs/pictures."""

from __future__ import annotations

from tests.docs.moving import bounds, concepts, panes, splits, windows

if __name__ == "__main__":
    concepts.PICTURE.write_text(concepts.draw(concepts.play()), encoding="utf-8")
    panes.PICTURE.write_text(panes.draw(panes.play()), encoding="utf-8")
    splits.PICTURE.write_text(splits.draw(splits.play()), encoding="utf-8")
    windows.PICTURE.write_text(windows.draw(windows.play()), encoding="utf-8")
    bounds.PICTURE.write_text(bounds.draw(bounds.play()), encoding="utf-8")
