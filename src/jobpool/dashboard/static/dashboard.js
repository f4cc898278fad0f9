// What a page gains from scripts: times in the reader's zone, and a page that stays new.
"use strict";

(() => {
  const today = () => new Date().toDateString();

  // Each <time> has its UTC time in its title; its text becomes the reader's own.
  const localise = (root) => {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const clock = at.toLocaleTimeString([], { hourCycle: "h23" });
      const day = at.toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" });
      const whole = "day" in element.dataset || at.toDateString() !== today();
      element.textContent = whole ? `${day}, ${clock}` : clock;
    }
  };

  // Labels of plots are hours and minutes.
  const label = (root) => {
    for (const element of root.querySelectorAll("text[data-ms]")) {
      const at = new Date(Number(element.dataset.ms));
      element.textContent = at.toLocaleTimeString([], { hourCycle: "h23", hour: "2-digit", minute: "2-digit" });
    }
  };

  const dress = (root) => {
    localise(root);
    label(root);
  };

  // A page whose part #live can be shown anew is, whenever something has changed; but
  // not while somebody is in the middle of it. Only pages that are seen listen: a browser
  // has few connections for each server.
  const AT_MOST_MS = 2000;
  const LOOK_MS = 500;
  const follow = (address) => {
    const shown = {};
    let events = null;
    let due = false;
    let last = 0;
    let pressed = false;
    const isInUse = () => {
      const part = document.getElementById("live");
      const active = document.activeElement;
      const typing = part.contains(active) && active.matches("input, textarea, select");
      const selection = document.getSelection();
      const reading = !selection.isCollapsed && part.contains(selection.anchorNode);
      return pressed || typing || reading || part.querySelector("details[open], dialog[open]") !== null;
    };
    const replace = (id, page) => {
      const part = page.getElementById(id);
      if (!part || shown[id] === part.outerHTML) return;
      shown[id] = part.outerHTML;
      const before = document.getElementById(id);
      // The focus stays where it is: at what has the same id, or leads to the same place.
      const focused = document.activeElement;
      const leads = before.contains(focused) ? focused.getAttribute("href") : null;
      const alike = (root) => [...root.querySelectorAll("a")].filter((one) => one.getAttribute("href") === leads);
      const turn = alike(before).indexOf(focused);
      const scrolled = [before, ...before.querySelectorAll("[id]")].map((one) => [one.id, one.scrollLeft, one.scrollTop]).filter(([, left, top]) => left || top);
      dress(part);
      before.replaceWith(part);
      for (const [one, left, top] of scrolled) document.getElementById(one)?.scrollTo(left, top);
      const again = document.getElementById(focused?.id) ?? alike(part)[turn];
      again?.focus({ preventScroll: true });
    };
    const refresh = async () => {
      if (!due || document.hidden || isInUse() || Date.now() - last < AT_MOST_MS) return;
      due = false;
      last = Date.now();
      const answer = await fetch(location.href).catch(() => null);
      if (!answer?.ok) {
        due ||= !answer || answer.status >= 500; // it may be there the next time
        return;
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      // What was pressed and let go at another element is no click, in the navigation too.
      if (!pressed) replace("nav", page);
      if (isInUse()) due = true;
      else replace("live", page);
    };
    const listen = () => {
      if (document.hidden) {
        events?.close();
        events = null;
      } else if (!events) {
        events = new EventSource(address);
        events.addEventListener("changed", () => { due = true; });
        // What was missed while nobody listened is made up for; a server that is away is said.
        events.addEventListener("open", () => { due = true; document.body.classList.remove("away"); });
        events.addEventListener("error", () => { document.body.classList.add("away"); });
      }
    };
    document.addEventListener("visibilitychange", listen);
    document.addEventListener("pointerdown", () => { pressed = true; });
    for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => { pressed = false; });
    setInterval(refresh, LOOK_MS);
    listen();
  };

  dress(document);
  // On a phone the pages stand in one row: it begins at the one that is open.
  const nav = document.getElementById("nav");
  const here = nav?.querySelector("[aria-current]");
  if (here) nav.scrollLeft = here.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
  // A graph that is wider than its part begins at what happens in it.
  for (const graph of document.querySelectorAll(".graph")) {
    const box = graph.querySelector(".box.failed, .box.asks, .box.running, .box.ready");
    if (box) graph.scrollLeft = box.x.baseVal.value - graph.clientWidth / 3;
  }
  const address = document.querySelector("[data-live]")?.dataset.live;
  if (address && document.getElementById("live")) follow(address);

  // "/" goes to the search box.
  document.addEventListener("keydown", (event) => {
    const box = document.getElementById("search");
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || !box || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    box.focus();
  });
})();
