"""Writes the page: ``report.html``, whole in one file, ``report.md`` with its plots, and the run's document.

Owns: the template and what it needs, and the names of the files.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from report import markdown
from report.blocks import Page
from report.parts import Run
from report.sections import page as page_of

HTML, MARKDOWN, DOCUMENT, PLOTS = "report.html", "report.md", "run.json", "plots"


def write(run: Run, directory: Path) -> Page:
    """Write everything below ``directory``, which is made; returns the page."""
    directory.mkdir(parents=True, exist_ok=True)
    # First: the page can be made anew from it, the run cannot.
    (directory / DOCUMENT).write_text(json.dumps(run.to_json(), indent=1) + "\n")
    page = page_of(run)
    (directory / HTML).write_text(html(page))
    (directory / MARKDOWN).write_text(markdown.render(page, PLOTS))
    write_plots(page, directory / PLOTS)
    return page


def write_plots(page: Page, directory: Path) -> None:
    """The Markdown page's plots; those of an earlier page go."""
    shutil.rmtree(directory, ignore_errors=True)
    for section in page.sections:
        for figures in markdown.figures_of(section):
            directory.mkdir(exist_ok=True)
            for figure in figures.figures:
                (directory / f"{figure.name}.svg").write_text(figure.svg)


def html(page: Page) -> str:
    """The page as HTML, with its style and plots inside."""
    environment = Environment(
        loader=PackageLoader("report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["prose"] = prose
    environment.filters["svg"] = Markup
    return environment.get_template("page.html").render(page=page)


def prose(text: str) -> Markup:
    """A document in Markdown as HTML; HTML in it is shown, not obeyed, and its headings stand below the section's."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 3)}"
    return Markup(parser.renderer.render(tokens, parser.options, {}))
