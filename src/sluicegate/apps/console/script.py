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

# Of the pages where rules are changed: what is wrong with a text as one types, and how far a
# rollout is, looked at again each two seconds.
WORK_SCRIPT: Final = """
const form = document.getElementById("editor"), running = document.getElementById("running")
  || document.getElementById("progress");
if (form) {
  const text = form.elements.text, found = document.getElementById("findings");
  let waiting = 0, asked = 0;
  const check = async () => {
    const mine = ++asked;
    try {
      const answer = await fetch("/changes/check",
        {method: "POST", body: new URLSearchParams(new FormData(form))});
      if (mine === asked) found.innerHTML = answer.ok ? await answer.text()
        : "<p class='bad'>The text cannot be checked now; proposing still checks it.</p>";
    } catch { if (mine === asked) found.textContent = "The console does not answer."; }
  };
  text.addEventListener("input",
    () => { clearTimeout(waiting); waiting = setTimeout(check, 400); });
  found.addEventListener("click", (event) => {
    const line = Number(event.target.dataset.line);
    if (!line) return;
    const lines = text.value.split("\\n");
    const from = lines.slice(0, line - 1).join("\\n").length + (line > 1);
    text.focus(); text.setSelectionRange(from, from + lines[line - 1].length);
    text.scrollTop = text.scrollHeight * (line - 4) / lines.length;
  });
  document.addEventListener("selectionchange", () => {
    const at = text.selectionStart, begin = text.value.lastIndexOf("\\n", at - 1) + 1;
    const names = text.value.slice(begin, at).match(/\\w+/g) || [];
    document.querySelectorAll("#help tr").forEach((row) => row.classList.toggle("now",
      names.length > 0 && row.querySelector("code")?.textContent === names.at(-1)));
  });
  if (!found.innerHTML.trim()) check();
} else if (running && running.innerHTML.trim()) {
  setInterval(async () => {
    try {
      const answer = await fetch("/changes/running");
      if (!answer.ok || answer.redirected) return;
      const html = await answer.text();
      if (html !== running.dataset.html) { running.innerHTML = html; running.dataset.html = html; }
    } catch { running.querySelector("p")?.classList.add("alarm"); }
  }, 2000);
}
"""
