"""Page: publishes and subscribes in a browser, over the service's own WebSocket.

One script and one style sheet, which its policy knows by their digests. What comes from channels is
shown as text. A token is kept in the page alone: it is not stored, and is gone on reload.
"""

from __future__ import annotations

from typing import Final

from sluicegate.command_line.page import render_page

_STYLE: Final = """
form { display: flex; flex-wrap: wrap; gap: 8px; margin: 12px 0; align-items: end; }
label { display: grid; font-size: 13.5px; gap: 2px; }
label.wide { flex: 1 1 320px; }
input, button { background: var(--paper); border: 1px solid var(--muted); border-radius: 4px;
  color: var(--ink); font: inherit; padding: 4px 10px; width: 100%; }
button { width: auto; }
#messages { list-style: none; margin: 12px 0; padding: 0; }
#messages li { border-bottom: 1px solid var(--grid); overflow-wrap: anywhere; padding: 4px 0; }
#messages .gap { color: var(--muted); font-style: italic; }
"""
_SCRIPT: Final = """
const part = (id) => document.getElementById(id);
const LINES_MAX = 200, WAIT_MS_MAX = 10000;
let socket = null, channel = "", after = null, tries = 0, attempts = 0, id = 0, timer = null;
const waiting = new Map(), members = new Set();
let member = "";
function show() { part("members").textContent = [...members].sort().join(", ") || "nobody"; }
function present(type, done) {
  ask({type, channel, member}, (message) => {
    part("result").textContent = message.type === "error" ? message.problem.detail : done;
  });
}
function list(after) {
  ask({type: "members", channel, after}, (message) => {
    for (const one of message.members || []) members.add(one.member);
    show();
    if (message.next) list(message.next);
  });
}
function state(text) { part("state").textContent = text; }
function line(text, kind) {
  const item = document.createElement("li");
  item.textContent = text;
  if (kind) item.className = kind;
  part("messages").prepend(item);
  while (part("messages").children.length > LINES_MAX) part("messages").lastChild.remove();
}
function ask(request, done) {
  waiting.set(++id, done);
  // The id first: an error names it though the rest is too long to be read.
  socket.send(JSON.stringify({id, ...request}));
}
function take(message) {
  if (message.type === "presence") {
    after = message.position;
    if (message.presence === "leave") members.delete(message.member);
    else members.add(message.member);
    show();
  } else if (message.type === "message") {
    after = message.position;
    line(typeof message.data === "string" ? message.data : JSON.stringify(message.data));
  } else if (message.type === "gap") {
    after = message.before - 1;
    line("Messages were lost" + (message.lost === null ? "." : ": " + message.lost + "."), "gap");
  } else {
    const done = waiting.get(message.id);
    waiting.delete(message.id);
    if (done) done(message);
  }
}
function connect() {
  clearTimeout(timer);
  attempts++;
  if (socket) socket.onclose = socket.onmessage = null, socket.close();
  const token = part("token").value.trim();
  const names = ["sluicegate.pubsub.v1"].concat(token ? ["bearer." + token] : []);
  try {
    socket = new WebSocket(location.origin.replace(/^http/, "ws") + "/v1/socket", names);
  } catch { socket = null; state("This is no token."); return; }
  state("Connecting.");
  socket.onopen = () => {
    const request = {type: "subscribe", channel};
    if (after !== null) request.after = after;
    ask(request, (message) => {
      if (message.type === "error") { state("Refused: " + message.problem.detail); return; }
      tries = 0;
      if (after === null) after = message.position;
      state("Subscribed to " + channel + ".");
      members.clear();
      list("");
      if (member) present("enter", "You are there as " + member + ".");
    });
  };
  socket.onmessage = (event) => take(JSON.parse(event.data));
  socket.onclose = ({code, reason}) => {
    socket = null;
    for (const done of waiting.values()) done({type: "error", problem: {detail: "no answer"}});
    waiting.clear();
    // The token is invalid or expired, or access was revoked: to connect again changes nothing.
    if (code === 4401 || code === 4403) { stop(reason); return; }
    again(token);
  };
}
function stop(why) {
  state("Not connected: " + why + ". Give a token, and subscribe again.");
}
async function again(token) {
  // A browser does not say why a WebSocket was not let in; a request with the same token does.
  const attempt = ++attempts;
  state("Not connected; it connects again.");
  let status = 0, detail = "";
  try {
    const headers = token ? {Authorization: "Bearer " + token} : {};
    const answer = await fetch("/v1/usage", {headers, cache: "no-store"});
    status = answer.status;
    if (!answer.ok) detail = (await answer.json()).detail;
  } catch { }
  if (socket || attempt !== attempts) return;
  if (status === 401 || status === 403) {
    stop(detail || status);
    return;
  }
  timer = setTimeout(connect, Math.random() * Math.min(WAIT_MS_MAX, 250 * 2 ** tries++));
}
part("subscribe").onsubmit = (event) => {
  event.preventDefault();
  if (channel !== part("channel").value) {
    after = null, member = "";
    part("messages").replaceChildren();
  }
  channel = part("channel").value;
  connect();
};
part("enter").onsubmit = (event) => {
  event.preventDefault();
  if (!socket || socket.readyState !== WebSocket.OPEN) return;
  if (member) present("leave", "You have left.");
  member = part("member").value;
  if (member) present("enter", "You are there as " + member + ".");
};
part("publish").onsubmit = (event) => {
  event.preventDefault();
  if (!socket || socket.readyState !== WebSocket.OPEN) { part("result").textContent =
    "Not sent: not connected."; return; }
  const data = part("data").value;
  ask({type: "publish", channel, data}, (message) => {
    const accepted = message.type === "accepted";
    part("result").textContent = accepted
      ? "Accepted at " + message.position + "." : "Not accepted: " + message.problem.detail;
    if (accepted && part("data").value === data) part("data").value = "";
  });
};
"""
_BODY: Final = (
    "<h1>Channels</h1>",
    '<form id="subscribe">',
    '<label>Channel<input id="channel" value="news" required maxlength="128"></label>',
    "<label>Token, if the service asks for one",
    '<input id="token" type="password" autocomplete="off"></label>',
    "<button>Subscribe</button></form>",
    '<p id="state" role="status">Not connected.</p>',
    '<form id="enter">',
    '<label>Your name there<input id="member" maxlength="128"></label>',
    "<button>Enter</button></form>",
    '<p>There: <span id="members">nobody</span></p>',
    '<form id="publish">',
    '<label class="wide">Message<input id="data" required></label>',
    "<button>Publish</button></form>",
    '<p id="result" class="quiet" role="status"></p>',
    "<h2>Messages, the newest first</h2>",
    '<ul id="messages"></ul>',
)


def render_channels() -> bytes:
    """The page."""
    text = render_page("Channels", _BODY, _STYLE, script=_SCRIPT, served=True)
    return text.encode()
