"""Script: what runs in a browser. Of live pages: new parts replace old ones, the focus stays.

Charts are drawn by the server; the script reads their values out at the pointer, and draws the same
values again over less time to zoom.
"""

from __future__ import annotations

from typing import Final

_CHARTS: Final = """
const views = new Map();
function viewOf(svg) {
  const key = svg.getAttribute("aria-label");
  const last = svg.querySelector(".curve").dataset.values.split(",").length - 1;
  if (!views.has(key)) views.set(key, {from: 0, to: last, at: null});
  return [views.get(key), last];
}
function show(svg) {
  const [view, last] = viewOf(svg);
  const [left, right, top, floor, most] = svg.dataset.plot.split(",").map(Number);
  if (view.to > last) Object.assign(view, {from: 0, to: last, at: null});
  const x = (at) => left + (right - left) * (at - view.from) / Math.max(view.to - view.from, 1);
  const ago = (at) => {
    const s = Math.round(svg.dataset.span * (last - at) / Math.max(last, 1));
    return s === 0 ? "now" : (s >= 60 ? `${Math.floor(s / 60)} min ` : "") + `${s % 60} s ago`;
  };
  const said = [];
  for (const curve of svg.querySelectorAll(".curve")) {
    const values = curve.dataset.values.split(",").map((one) => one === "" ? null : Number(one));
    if (view.from > 0 || view.to < last) {
      const runs = [[]];
      values.forEach((value, at) => {
        if (at < view.from || at > view.to) return;
        if (value === null) runs.push([]);
        else runs.at(-1).push(`${x(at)},${floor - (floor - top) * value / most}`);
      });
      curve.replaceChildren(...runs.filter((run) => run.length > 1).map((run) => {
        const line = document.createElementNS(svg.namespaceURI, "polyline");
        line.setAttribute("class", curve.getAttribute("class").replace("curve", "line"));
        line.setAttribute("points", run.join(" "));
        return line;
      }));
      const ends = svg.querySelectorAll("text.time");
      ends[0].textContent = ago(view.from); ends[1].textContent = ago(view.to);
    }
    const value = view.at === null ? null : values[view.at];
    said.push(`${curve.dataset.name} ${value === null ? "-" : Number((value * svg.dataset.scale)
      .toPrecision(4)).toLocaleString("en") + svg.dataset.unit}`);
  }
  svg.classList.toggle("reading", view.at !== null);
  const cursor = svg.querySelector(".cursor");
  if (view.at !== null) for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(view.at));
  svg.nextElementSibling.textContent
    = view.at === null ? "" : `${ago(view.at)}: ${said.join(", ")}`;
}
const clamp = (at, view) => Math.min(Math.max(Math.round(at), view.from), view.to);
const chartOf = (event) => event.target.closest?.("svg[data-plot]");
function under(svg, event) {
  const [view] = viewOf(svg), box = svg.getBoundingClientRect();
  const [left, right, , , , wide] = svg.dataset.plot.split(",").map(Number);
  const share = ((event.clientX - box.left) / box.width * wide - left) / (right - left);
  return clamp(view.from + share * (view.to - view.from), view);
}
let begun = null, read = null;
function leave() {
  if (!read?.isConnected) read = [...document.querySelectorAll("svg.reading")].pop();
  if (read) { viewOf(read)[0].at = null; show(read); }
  read = null;
}
document.addEventListener("pointermove", (event) => {
  const svg = chartOf(event);
  if (read && svg !== read) leave();
  if (svg) { viewOf(svg)[0].at = under(svg, event); show(svg); read = svg; }
});
document.addEventListener("pointerdown", (event) => {
  const svg = chartOf(event);
  begun = svg ? [svg.getAttribute("aria-label"), under(svg, event)] : null;
  if (svg) event.preventDefault();
});
document.addEventListener("pointerup", (event) => {
  const svg = chartOf(event);
  if (svg && begun && begun[0] === svg.getAttribute("aria-label")) {
    const ends = [begun[1], under(svg, event)].sort((one, other) => one - other);
    if (ends[1] - ends[0] > 1)
      Object.assign(viewOf(svg)[0], {from: ends[0], to: ends[1]});
    show(svg);
  }
  begun = null;
});
function whole(svg) {
  const [view, last] = viewOf(svg);
  Object.assign(view, {from: 0, to: last});
  redraw(svg);
}
function redraw(svg) {
  const kept = original.get(svg.getAttribute("aria-label"));
  if (!kept) return show(svg);
  const again = new DOMParser().parseFromString(kept, "text/html").querySelector("svg");
  const held = document.activeElement === svg;
  svg.replaceWith(again);
  if (held) again.focus({preventScroll: true});
  show(again);
}
const original = new Map();
function remember(root) {
  for (const svg of root.querySelectorAll("svg[data-plot]")) {
    original.set(svg.getAttribute("aria-label"), svg.outerHTML);
    show(svg);
  }
}
document.addEventListener("dblclick", (event) => {
  const svg = chartOf(event);
  if (svg) whole(svg);
});
document.addEventListener("keydown", (event) => {
  const svg = chartOf(event);
  if (!svg) return;
  const [view, last] = viewOf(svg), at = view.at ?? view.to, wide = view.to - view.from;
  if (event.key === "Escape") { view.at = null; whole(svg); }
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    view.at = clamp(at + (event.key === "ArrowLeft" ? -1 : 1), view); show(svg);
  } else if (event.key === "+" && wide > 3) {
    const from = Math.max(view.from, Math.round(at - wide / 4));
    Object.assign(view, {from, to: Math.min(view.to, from + Math.round(wide / 2))}); show(svg);
  } else if (event.key === "-") {
    Object.assign(view, {from: Math.max(0, view.from - Math.ceil(wide / 2)),
      to: Math.min(last, view.to + Math.ceil(wide / 2))}); redraw(svg);
  } else return;
  event.preventDefault();
});
"""

SCRIPT: Final = (
    _CHARTS
    + """
const body = document.body, pause = document.getElementById("pause");
let events = null;
const stops = (part) => [...part.querySelectorAll("a, [tabindex]")];
function put(part, html) {
  const at = stops(part).indexOf(document.activeElement);
  part.innerHTML = html;
  remember(part);
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
remember(document);
follow();
"""
)

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

# Of one rule: what limiters count of it, looked at again each two seconds.
RULE_SCRIPT: Final = """
const counts = document.getElementById("counts");
if (counts) setInterval(async () => {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href);
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const now = page.getElementById("counts");
    if (now && now.innerHTML !== counts.innerHTML) counts.innerHTML = now.innerHTML;
  } catch { }
}, 2000);
"""
