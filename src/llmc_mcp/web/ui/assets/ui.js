// Replaces the live part of the page when the server says that something changed. Everything else works without it.
"use strict";

let source = null, busy = false, again = false;

async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const reply = await fetch(location.href, { headers: { "X-LLMC-Live": "1" }, redirect: "error" });
    if (reply.ok) replace(new DOMParser().parseFromString(await reply.text(), "text/html").getElementById("live"));
  } catch { /* the server is away: the next event tries again */ }
  busy = false;
  if (again) { again = false; refresh(); }
}

function replace(fresh) {
  const live = document.getElementById("live");
  if (!fresh || !live || fresh.innerHTML === live.innerHTML) return;
  const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
  const open = [...live.querySelectorAll("details[open]")].map(one => one.id);
  const places = [...live.querySelectorAll("pre")].map(one => [one.scrollLeft, one.scrollTop]);
  const adopted = document.adoptNode(fresh);
  for (const id of open) { const one = adopted.querySelector("#" + CSS.escape(id)); if (one) one.open = true; }
  live.replaceWith(adopted);
  [...adopted.querySelectorAll("pre")].forEach((one, at) => { if (places[at]) one.scrollTo(...places[at]); });
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

function follow() {
  if (document.hidden || source) return;
  source = new EventSource("/ui/events");
  source.onmessage = refresh;
}

// A browser has few connections to one server: only pages that are seen hold one.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) { follow(); refresh(); } else if (source) { source.close(); source = null; }
});
addEventListener("pagehide", () => { source?.close(); source = null; });
addEventListener("pageshow", follow);
follow();
