"""A figure that a notebook shows by itself."""

import os
from base64 import b64encode
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from cafenet.common.files import write_text


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, with its caption. As the last value of a notebook's cell, it shows itself.

    Example:
        >>> from cafenet.common.picture import Picture
        >>> Picture("Widths", "Two layers.", "<svg/>")
        Picture(title='Widths', caption='Two layers.')
    """

    title: str
    """Title of the figure."""
    caption: str
    """Description of the figure in words."""
    svg: str = field(repr=False)
    """The figure as one SVG file in light colours."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure to a file, for papers and slides.

        Args:
            path: The file, with the ending `.svg`.
        """
        write_text(Path(path), self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        """Return the figure as an image, so that its style changes nothing else on the page."""
        image = b64encode(self.svg.encode()).decode()
        return (
            f'<figure style="margin: 0"><b>{escape(self.title)}</b><br><img alt="{escape(self.title)}" '
            f'src="data:image/svg+xml;base64,{image}" style="background: #fff; max-width: 100%">'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )
