"use strict";
const byId = (id) => document.getElementById(id);
const make = (name, className, text) => {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

// What a terminal would act on, hide or reorder is spelled out here too; a test compares the tables.
const hidden = /[\u{0}-\u{1f}\u{7f}-\u{a0}\u{ad}\u{34f}\u{61c}\u{115f}-\u{1160}\u{1680}\u{17b4}-\u{17b5}\u{180b}-\u{180f}\u{2000}-\u{200f}\u{2028}-\u{202f}\u{205f}-\u{206f}\u{3000}\u{3164}\u{fe00}-\u{fe0f}\u{feff}\u{ffa0}\u{fff0}-\u{fffb}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const clean = (text) => text.replace(hidden,
  (c) => (c === "\n" ? "⏎\n" : "\\u{" + c.codePointAt(0).toString(16) + "}"));
const text = (value) => {
  if (value === null || value === undefined) return "";
  if (typeof value === "object" && typeof value.b64 === "string") {
    const bytes = Uint8Array.from(atob(value.b64), (c) => c.charCodeAt(0));
    return clean(new TextDecoder().decode(bytes));
  }
  return clean(String(value));
};
const took = (ms) => ms < 1000 ? ms.toFixed(ms < 10 ? 1 : 0) + "ms"
  : ms < 60000 ? (ms / 1000).toFixed(1) + "s"
  : Math.floor(ms / 60000) + "m" + String(Math.floor(ms / 1000) % 60).padStart(2, "0") + "s";

function verdictOf(span) {
  if (span.outcome) return span.outcome;
  const word = span.verdict || "";
  return span.mode === "observe" && (word === "deny" || word === "ask") ? "would_" + word : word;
}
const tintOf = (verdict) => verdict === "allow" ? "allow" : verdict === "isolate" ? "isolate"
  : verdict === "deny" || verdict === "refused" ? "deny" : verdict === "" ? "plain" : "ask";

const spans = JSON.parse(byId("data").textContent).map((raw) => {
  const ended = Date.parse(raw.ts) || 0;
  const duration = typeof raw.duration_ms === "number" ? raw.duration_ms : 0;
  const diff = raw.fs_diff || {};
  const files = ["writes", "mods", "deletes", "created_dirs"].flatMap((kind) => diff[kind] || []).map(text);
  const verdict = verdictOf(raw);
  const failed = verdict === "deny" || (typeof raw.exit === "number" && raw.exit !== 0) || typeof raw.signal === "number";
  const command = text(raw.cmd) || text(raw.event_type);
  const found = [command, text(raw.cwd), ...files, ...(raw.scopes_used || []).map(text), ...(raw.net || []).map((use) => text(use.host))];
  return { raw, id: raw.span_id || "", start: ended - duration, end: ended, duration, verdict, failed, command, depth: 0,
    agent: text(raw.agent_id), session: text(raw.session_id), found: found.join("\n").toLowerCase() };
}).sort((a, b) => a.start - b.start);
const known = new Map(spans.map((span) => [span.id, span]));
for (const span of spans) {
  let above = known.get(span.raw.parent_span);
  while (above && span.depth < 12) { span.depth += 1; above = known.get(above.raw.parent_span); }
}

const state = { search: "", session: "", agent: "", failed: false, verdicts: new Set(), chosen: "" };
const verdicts = [...new Set(spans.map((span) => span.verdict).filter(Boolean))].sort();
let shown = [];

function options(select, all, values) {
  select.append(new Option(all, ""));
  for (const value of [...new Set(values)].filter(Boolean)) select.append(new Option(value, value));
}

// Long pauses are shortened, so that what happened around them can be seen.
function scale(visible) {
  const busy = [];
  for (const span of visible) {
    const end = Math.max(span.end, span.start + 1), last = busy[busy.length - 1];
    if (last && span.start <= last.end) last.end = Math.max(last.end, end);
    else busy.push({ start: span.start, end });
  }
  const active = busy.reduce((sum, part) => sum + part.end - part.start, 0);
  const short = Math.max(active * 0.02, 1), gaps = [];
  let at = 0;
  busy.forEach((part, index) => {
    const before = busy[index - 1];
    if (before) {
      const pause = part.start - before.end, drawn = Math.min(pause, short);
      if (pause > 20 * drawn) gaps.push(at + drawn / 2);
      at += drawn;
    }
    part.at = at;
    at += part.end - part.start;
  });
  const total = at || 1;
  const place = (time) => {
    let low = 0, high = busy.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (busy[middle].start <= time) low = middle; else high = middle - 1;
    }
    const part = busy[low];
    return 100 * (part.at + Math.min(Math.max(time - part.start, 0), part.end - part.start)) / total;
  };
  return { place, gaps: gaps.map((gap) => 100 * gap / total), active };
}

function fits(span) {
  return (!state.session || span.session === state.session) && (!state.agent || span.agent === state.agent)
    && (!state.failed || span.failed) && !(span.verdict && state.verdicts.has(span.verdict))
    && state.search.toLowerCase().split(/\s+/).every((word) => span.found.includes(word));
}

function draw() {
  shown = spans.filter(fits);
  const { place, gaps, active } = scale(shown);
  const rows = shown.map((span) => {
    const row = make("div", "row");
    row.id = "row-" + span.id;
    row.dataset.span = span.id;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", "false");
    row.tabIndex = -1;
    const at = new Date(span.start);
    const time = make("span", "time", at.toTimeString().slice(0, 8));
    time.title = at.toLocaleString();
    const verdict = make("span", "verdict " + tintOf(span.verdict), span.verdict || "-");
    const exit = typeof span.raw.signal === "number" ? "sig " + span.raw.signal : span.raw.exit ?? "-";
    const command = make("span", "command", span.command.replace(/\n/g, " "));
    command.style.paddingLeft = 1.2 * span.depth + "em";
    command.title = span.command;
    const track = make("span", "track"), bar = make("span", "bar " + tintOf(span.verdict));
    const from = place(span.start), to = place(Math.max(span.end, span.start + 1));
    bar.style.left = "min(" + from + "%, 100% - 3px)";
    bar.style.width = Math.max(to - from, 0) + "%";
    bar.title = took(span.duration);
    for (const gap of gaps) {
      const mark = make("span", "gap");
      mark.style.left = gap + "%";
      track.append(mark);
    }
    track.append(bar);
    row.append(time, verdict, make("span", "exit" + (span.failed ? " bad" : ""), String(exit)), command, track);
    return row;
  });
  byId("rows").replaceChildren(...rows);
  byId("none").hidden = shown.length > 0;
  const failed = shown.filter((span) => span.failed).length;
  byId("summary").textContent = shown.length + " of " + spans.length + " spans, " + failed + " failed or refused";
  byId("axis").textContent = shown.length ? took(active) + " of activity" : "";
  choose(shown.some((span) => span.id === state.chosen) ? state.chosen : shown.length ? shown[shown.length - 1].id : "", false);
}

function list(into, title, values) {
  if (!values || !values.length) return;
  into.append(make("h3", "", title + " (" + values.length + ")"));
  const items = make("ul");
  for (const value of values.slice(0, 500)) items.append(make("li", "", text(value)));
  if (values.length > 500) items.append(make("li", "", "… " + (values.length - 500) + " more"));
  into.append(items);
}

function details(span) {
  const panel = byId("details");
  panel.replaceChildren();
  if (!span) return;
  const raw = span.raw, rows = make("dl");
  const line = (name, value, className) => {
    if (value === "") return;
    rows.append(make("dt", "", name), make("dd", className, value));
  };
  panel.append(make("h2", "", span.command), rows);
  line("verdict", span.verdict + " by policy '" + text(raw.policy_id) + "' (" + text(raw.mode) + ")", tintOf(span.verdict));
  if (raw.rule) line("rule", text(raw.rule.pattern) + " in " + text(raw.rule.list) + ", " + text(raw.rule.file) + ":" + text(raw.rule.line));
  line("reason", text(raw.reason));
  line("exit", text(raw.exit) + (typeof raw.signal === "number" ? "signal " + raw.signal : ""), span.failed ? "deny" : "");
  line("began", new Date(span.start).toLocaleString() + (span.duration ? ", ran " + took(span.duration) : ""));
  line("directory", text(raw.cwd));
  line("agent", span.agent);
  line("place", [text(raw.place), text(raw.world_id)].filter(Boolean).join(" "));
  if (raw.enforced) line("enforced", text(raw.enforced.level) + ": fs " + text(raw.enforced.fs) + ", net " + text(raw.enforced.net)
    + ", exec " + text(raw.enforced.exec) + ", limits " + text(raw.enforced.limits));
  line("span", text(raw.span_id));
  line("parent", text(raw.parent_span));
  line("session", span.session);
  list(panel, "Not enforced", [...(raw.degraded || []), ...((raw.enforced || {}).degraded || [])]);
  const diff = raw.fs_diff || {};
  list(panel, "Created", diff.writes);
  list(panel, "Changed", diff.mods);
  list(panel, "Deleted", diff.deletes);
  list(panel, "New directories", diff.created_dirs);
  list(panel, "Network", (raw.net || []).map((use) => use.host + ":" + use.port + "  sent " + use.tx + ", received " + use.rx
    + (use.refused ? ", refused " + use.refused + "×" : "")));
  list(panel, "Scopes", raw.scopes_used);
  list(panel, "Events", (raw.events || []).map((event) => [event.ts, event.event_type, event.outcome, event.action, event.detail, event.reason]
    .filter(Boolean).join("  ")));
  for (const stream of ["stdout", "stderr"]) {
    const recorded = (raw.output || {})[stream];
    if (!recorded) continue;
    panel.append(make("h3", "", stream + " (" + recorded.bytes + " bytes)"));
    if (recorded.copy !== undefined) panel.append(make("pre", "", text(recorded.copy)));
  }
}

function choose(id, focus) {
  for (const row of byId("rows").querySelectorAll('[aria-selected="true"]')) {
    row.setAttribute("aria-selected", "false");
    row.tabIndex = -1;
  }
  state.chosen = id;
  const row = id ? byId("row-" + id) : null;
  if (row) {
    row.setAttribute("aria-selected", "true");
    row.tabIndex = 0;
    row.scrollIntoView({ block: "nearest" });
    if (focus) row.focus();
  }
  details(shown.find((span) => span.id === id));
  remember();
}

function move(step) {
  const at = shown.findIndex((span) => span.id === state.chosen);
  const to = Math.min(Math.max(at + step, 0), shown.length - 1);
  if (shown[to]) choose(shown[to].id, true);
}

// The address keeps the view, so that it survives a reload and can be kept as a bookmark.
function remember() {
  const kept = new URLSearchParams();
  if (state.search) kept.set("q", state.search);
  if (state.session) kept.set("session", state.session);
  if (state.agent) kept.set("agent", state.agent);
  if (state.failed) kept.set("failed", "1");
  if (state.verdicts.size) kept.set("without", [...state.verdicts].join(","));
  if (state.chosen) kept.set("span", state.chosen);
  history.replaceState(null, "", "#" + kept);
}
function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  state.search = kept.get("q") || "";
  state.session = kept.get("session") || "";
  state.agent = kept.get("agent") || "";
  state.failed = kept.get("failed") === "1";
  state.verdicts = new Set((kept.get("without") || "").split(",").filter((verdict) => verdicts.includes(verdict)));
  state.chosen = kept.get("span") || "";
  byId("search").value = state.search;
  byId("session").value = state.session;
  byId("agent").value = state.agent;
  byId("failed").checked = state.failed;
  for (const button of byId("verdicts").children) button.setAttribute("aria-pressed", String(!state.verdicts.has(button.dataset.verdict)));
}

function theme(name) { document.documentElement.dataset.theme = name; }
function otherTheme() { theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); }
function keys() {
  const hidden = !byId("keys").hidden;
  byId("keys").hidden = hidden;
  byId("help").setAttribute("aria-expanded", String(!hidden));
}

theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
options(byId("session"), "all sessions", spans.map((span) => span.session));
options(byId("agent"), "everyone", spans.map((span) => span.agent));
for (const verdict of verdicts) {
  const button = make("button", tintOf(verdict), verdict);
  button.type = "button";
  button.dataset.verdict = verdict;
  button.addEventListener("click", () => {
    if (!state.verdicts.delete(verdict)) state.verdicts.add(verdict);
    button.setAttribute("aria-pressed", String(!state.verdicts.has(verdict)));
    draw();
  });
  byId("verdicts").append(button, " ");
}
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("search").addEventListener("input", (event) => { state.search = event.target.value; draw(); });
byId("session").addEventListener("change", (event) => { state.session = event.target.value; draw(); });
byId("agent").addEventListener("change", (event) => { state.agent = event.target.value; draw(); });
byId("failed").addEventListener("change", (event) => { state.failed = event.target.checked; draw(); });
byId("theme").addEventListener("click", otherTheme);
byId("help").addEventListener("click", keys);
byId("rows").addEventListener("click", (event) => {
  const row = event.target.closest(".row");
  if (row) choose(row.dataset.span, true);
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const typing = event.target.matches("input[type=search], select");
  if (event.key === "Escape") {
    if (event.target === byId("search") && state.search) { byId("search").value = state.search = ""; draw(); }
    else if (state.chosen) choose(state.chosen, true);
    return;
  }
  if (typing) {
    if (event.key === "Enter" && event.target === byId("search")) choose(state.chosen, true);
    return;
  }
  const parent = () => {
    const above = shown.find((span) => span.id === state.chosen)?.raw.parent_span;
    if (above && shown.some((span) => span.id === above)) choose(above, true);
  };
  const actions = {
    j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
    PageDown: () => move(20), PageUp: () => move(-20), g: () => move(-spans.length), Home: () => move(-spans.length),
    G: () => move(spans.length), End: () => move(spans.length), p: parent, t: otherTheme, "?": keys,
    "/": () => byId("search").focus(), Enter: () => byId("details").focus(),
    f: () => { state.failed = byId("failed").checked = !state.failed; draw(); },
  };
  const inDetails = byId("details").contains(event.target);
  const pressing = event.target.matches("button, input, option") && (event.key === "Enter" || event.key === " ");
  if (!actions[event.key] || pressing || (inDetails && /^(Arrow|Page|Home|End)/.test(event.key))) return;
  event.preventDefault();
  actions[event.key]();
});
addEventListener("hashchange", () => { recall(); draw(); });
recall();
draw();
