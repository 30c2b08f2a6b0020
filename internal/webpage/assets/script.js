// Keeps a page up to date. The page is whole without this script, which only takes over what has changed.
const content = document.getElementById("content");
const status = document.getElementById("status");
const time = document.getElementById("time");
const here = location.pathname;

// told is what the page shows, by the name that the server gave it.
let told = content.dataset.version;
let stream = null;
let lost = false;
let fetching = null;
let again = false;
let ended = false;
let pause = 1000;
let timer = 0;

// say writes where a screen reader hears it: only what a person should know, once.
function say(text) {
  if (status.textContent !== text) status.textContent = text;
}

function seen(moment) {
  const at = new Date(moment);
  if (Number.isNaN(at.getTime())) return;
  time.dateTime = moment;
  time.textContent = at.toISOString().slice(11, 19) + " UTC";
}

function lose(text) {
  if (!lost) say(`${text} What you see is of ${time.textContent}.`);
  lost = true;
}

function find() {
  if (lost) {
    say("Connected again.");
    setTimeout(() => lost || say(""), 10000);
  }
  lost = false;
  pause = 1000;
}

// update makes one element like another, and leaves alone what is the same: the focus, what is selected, what is open.
function update(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of old.getAttributeNames()) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  children(old, fresh);
}

function children(old, fresh) {
  const wanted = [...fresh.childNodes];
  const named = new Set(wanted.map((node) => node.id).filter(Boolean));
  wanted.forEach((node, i) => {
    // What has a name stays where it is, and its neighbours come and go: it may have the focus.
    const kept = node.id && [...old.childNodes].slice(i).find((child) => child.id === node.id);
    while (kept && old.childNodes[i] !== kept) old.childNodes[i].remove();
    const now = old.childNodes[i];
    if (!now) old.append(node);
    else if (now.isEqualNode(node)) return;
    else if (now.id && now.id !== node.id && named.has(now.id)) now.before(node);
    else if (now.nodeType === Node.ELEMENT_NODE && now.nodeName === node.nodeName && now.id === node.id) update(now, node);
    else if (now.nodeType === Node.TEXT_NODE && node.nodeType === Node.TEXT_NODE) now.data = node.data;
    else now.replaceWith(node);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

// refresh asks for what has changed; one asks at a time.
async function refresh() {
  again = fetching !== null;
  fetching ??= ask().finally(() => {
    fetching = null;
    if (again) refresh();
  });
  await fetching;
}

async function ask() {
  let answer;
  try {
    answer = await fetch(`${here}?part`, { headers: { "If-None-Match": `"${told}"` }, cache: "no-store" });
    if (answer.status === 200) {
      const fresh = document.createElement("template");
      fresh.innerHTML = await answer.text();
      children(content, fresh.content);
      told = (answer.headers.get("ETag") || "").replaceAll('"', "");
    }
  } catch {
    lose("The connection is lost; trying again.");
    return;
  }
  if (answer.ok || answer.status === 304) {
    seen(answer.headers.get("Divvy-Time") || "");
    find();
  } else if (answer.status >= 500) {
    lose("Nothing can be told now; trying again.");
  } else {
    end();
    ended = true;
    say("This page has ended: open it again.");
  }
}

function end() {
  clearTimeout(timer);
  stream?.close();
  stream = null;
}

// begin has the server tell of changes. A stream that it ends begins again; a server that is away is asked less often.
function begin() {
  end();
  if (ended || document.hidden) return;
  stream = new EventSource(`${here}?events`);
  stream.addEventListener("look", (event) => {
    const { version, time: moment } = JSON.parse(event.data);
    if (version !== told) {
      refresh();
      return;
    }
    seen(moment);
    find();
  });
  stream.addEventListener("trouble", () => lose("Nothing can be told now; trying again."));
  stream.onerror = () => {
    end();
    timer = setTimeout(async () => {
      await refresh();
      begin();
    }, pause);
    pause = Math.min(2 * pause, 10000);
  };
}

// Nothing is asked for while nobody looks.
document.addEventListener("visibilitychange", () => {
  begin();
  if (!document.hidden && !ended) refresh();
});
addEventListener("pagehide", end);
begin();
