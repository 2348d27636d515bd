// What pages do beyond being read: keys, the theme, and the choice of colours. Nothing is ever made from text.
"use strict";
(() => {
  const root = document.documentElement;
  const store = { get: (k) => { try { return localStorage.getItem(k); } catch { return null; } }, set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* private mode */ } } };
  if (store.get("gem-theme")) root.dataset.theme = store.get("gem-theme");
  document.querySelector("[data-theme-switch]")?.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store.set("gem-theme", root.dataset.theme);
    document.dispatchEvent(new Event("gem-theme"));
  });

  const rows = () => [...document.querySelectorAll("[data-list] [data-row]")].filter((row) => row.offsetParent !== null);
  let on = -1;
  const choose = (step) => {
    const all = rows();
    if (!all.length) return;
    if (on < 0) {
      const here = location.hash ? all.findIndex((row) => "#" + row.id === location.hash) : -1;
      if (here >= 0) on = here;
    }
    all[on]?.removeAttribute("data-on");
    on = Math.max(0, Math.min(all.length - 1, on + step));
    const row = all[on];
    row.setAttribute("data-on", "");
    row.scrollIntoView({ block: row.matches(".turn") ? "start" : "nearest" });
    if (row.matches(".turn")) row.focus({ preventScroll: true });
  };
  const keys = document.querySelector("[data-keys]");
  document.querySelector("[data-keys-open]")?.addEventListener("click", () => keys.showModal());
  document.querySelector("[data-keys-close]")?.addEventListener("click", () => keys.close());
  const follow = (selector) => { const link = document.querySelector(selector); if (link) link.click(); };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (keys?.open) { if (event.key === "?") keys.close(); return; }
    if (event.key === "?") keys?.showModal();
    else if (event.key === "j") choose(1);
    else if (event.key === "k") choose(-1);
    else if (event.key === "Enter" && on >= 0 && !event.target.closest("a, button, summary")) rows()[on]?.querySelector("a[href]:not(.no)")?.click();
    else if (event.key === "n") follow("a[rel=next]");
    else if (event.key === "p") follow("a[rel=prev]");
    else if (event.key === "u") follow("[data-up]");
    else if (event.key === "/") { const box = document.querySelector("input[type=search]"); if (!box) return; box.focus(); event.preventDefault(); }
    else return;
  });

  document.addEventListener("change", (event) => {
    if (!event.target.closest("[data-colours]")) return;
    const colour = event.target.value;
    for (const list of document.querySelectorAll(".turns")) list.className = list.className.replace(/\bby-\w+/, "by-" + colour);
    for (const legend of document.querySelectorAll("[data-legend]")) legend.hidden = legend.dataset.legend !== colour;
    if (location.protocol === "file:") return;
    const address = new URL(location);
    address.searchParams.set("colour", colour);
    history.replaceState(null, "", address);
    for (const link of document.querySelectorAll("a[rel=next], a[rel=prev]")) {
      const there = new URL(link.href);
      there.searchParams.set("colour", colour);
      link.href = there.href;
    }
  });

  for (const form of document.querySelectorAll("form.find")) {
    form.addEventListener("change", (event) => { if (event.target.matches("select")) form.requestSubmit(); });
    form.addEventListener("formdata", (event) => {
      for (const [name, value] of [...event.formData.entries()]) if (value === "") event.formData.delete(name);
    });
  }

  // An exported run: the episode that the address names is taken out of its template.
  const place = document.querySelector("[data-one]");
  if (place) {
    const list = document.querySelector("[data-all]");
    const show = () => {
      const wanted = /^#e-\d+-\d+$/.test(location.hash) ? document.getElementById(location.hash.slice(1)) : null;
      if (!wanted && location.hash.startsWith("#turn-")) return;
      place.replaceChildren(...(wanted ? [wanted.content.cloneNode(true)] : []));
      list.hidden = Boolean(wanted);
      on = -1;
      scrollTo(0, 0);
    };
    addEventListener("hashchange", show);
    show();
    const find = document.querySelector("[data-find]");
    const texts = new Map();  // of each episode, read when it is first searched
    const text = (row) => {
      const id = row.querySelector("a[href]").hash.slice(1);
      if (!texts.has(id)) texts.set(id, (document.getElementById(id)?.content.textContent ?? "").toLowerCase());
      return texts.get(id);
    };
    const filter = () => {
      const words = find.elements.q.value.trim().toLowerCase();
      const run = find.elements.run?.value ?? "", outcome = find.elements.outcome.value;
      let count = 0;
      for (const row of list.querySelectorAll("[data-row]")) {
        const fits = (!run || row.dataset.run === run) && (!outcome || row.dataset.outcome === outcome) && (!words || text(row).includes(words));
        row.hidden = !fits;
        count += fits;
      }
      find.querySelector("[data-found]").textContent = words || run || outcome ? `${count} episode${count === 1 ? "" : "s"}` : "";
    };
    find?.addEventListener("input", filter);
    find?.addEventListener("submit", (event) => event.preventDefault());
  }

  // While a run is written: say how many episodes came since, as long as the page is looked at.
  const live = document.querySelector("[data-live]");
  if (live) {
    setInterval(async () => {
      if (document.hidden) return;
      try {
        const now = await (await fetch(live.dataset.live)).json();
        const more = now.episodes - Number(live.dataset.episodes);
        const link = document.querySelector("[data-fresh]");
        if (more > 0) { link.textContent = `${more} new episode${more === 1 ? "" : "s"}: show`; link.hidden = false; }
        if (now.iterations > Number(live.dataset.iterations)) { live.dataset.iterations = now.iterations; document.dispatchEvent(new Event("gem-grown")); }
      } catch { /* the server has ended */ }
    }, 4000);
  }
})();
