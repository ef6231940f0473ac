"""Hooks for mkdocs: links that lead out of docs/ become links into the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_OUTWARD = re.compile(r"\]\((?:\.\./)+(?P<path>[\w./-]+)(?P<anchor>#[\w-]+)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Rewrite links like ``](../ci/Jenkinsfile)`` that lead out of docs/. Raise FileNotFoundError for missing files."""

    def outward(match: re.Match[str]) -> str:
        target = (Path(page.file.abs_src_path).parent / match[0][2:-1].partition("#")[0]).resolve()
        if target.is_relative_to(config.docs_dir):
            return match[0]
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {match['path']}, which is not there")
        kind = "tree" if target.is_dir() else "blob"
        return f"]({config.repo_url}/{kind}/main/{target.relative_to(ROOT)}{match['anchor'] or ''})"

    return _OUTWARD.sub(outward, markdown)
