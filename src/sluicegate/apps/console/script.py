"""Script: the one script of the console. New parts replace old ones, the focus stays."""

from __future__ import annotations

from typing import Final

SCRIPT: Final = """
const body = document.body, pause = document.getElementById("pause");
let events = null;
const stops = (part) => [...part.querySelectorAll("a, [tabindex]")];
function put(part, html) {
  const at = stops(part).indexOf(document.activeElement);
  part.innerHTML = html;
  if (at >= 0) stops(part)[at]?.focus({preventScroll: true});
}
function follow() {
  events = new EventSource("/live" + (location.pathname === "/" ? "/overview" : location.pathname)
    + location.search);
  events.onopen = () => { body.className = "live"; };
  events.onmessage = (event) => {
    body.className = "live";
    for (const [name, html] of Object.entries(JSON.parse(event.data))) {
      const part = document.getElementById(name);
      if (part) put(part, html);
    }
  };
  events.onerror = () => {
    body.className = "lost";
    if (events.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 3000);
  };
}
pause.onclick = () => {
  const paused = pause.getAttribute("aria-pressed") !== "true";
  pause.setAttribute("aria-pressed", paused);
  if (paused) { events.close(); body.className = "paused"; } else follow();
};
follow();
"""
