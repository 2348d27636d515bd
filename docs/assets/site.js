// Small things: a table's cells learn their columns, for phones; the filter of the environments; old addresses.
function label() {
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, number) => (cell.dataset.label = heads[number] ?? ""));
    if (heads.length) table.dataset.stacked = "";
  }
}

function filter() {
  const form = document.querySelector(".env-filter");
  if (!form) return;
  const classes = [...document.querySelectorAll(".env-class")];
  const show = (event) => {
    const wanted = Object.fromEntries(new FormData(form));
    const words = wanted.words.toLowerCase().split(/\s+/).filter(Boolean);
    delete wanted.words;
    let shown = 0;
    for (const section of classes) {
      const about = section.querySelector("h3, p").parentElement;
      const said = [about.querySelector("h3"), about.querySelector("p")].map((part) => part.textContent).join(" ");
      let any = false;
      for (const line of section.querySelectorAll("li")) {
        const text = (said + " " + line.textContent).toLowerCase();
        const fits =
          words.every((word) => text.includes(word)) &&
          Object.entries(wanted).every(([name, value]) => !value || line.dataset[name] === value);
        line.hidden = !fits;
        any ||= fits;
        shown += fits;
      }
      section.hidden = !any;
    }
    const address = asked(form);
    for (const family of document.querySelectorAll(".env-family")) {
      family.hidden = !family.querySelector(".env-class:not([hidden])");
      if (event || address.includes("?")) family.open = address.includes("?");
    }
    form.querySelector("output").textContent = `${shown} ids`;
    history.replaceState(null, "", address);
  };
  for (const [name, value] of new URLSearchParams(location.search))
    if (form.elements[name]) form.elements[name].value = value;
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

// The address of what is asked for, so that a filtered list can be linked.
function asked(form) {
  const given = [...new FormData(form)].filter(([, value]) => value);
  return location.pathname + (given.length ? "?" + new URLSearchParams(given) : "") + location.hash;
}

// A name that was on this page is now where the link with the longest beginning of that name leads.
function forward() {
  const name = decodeURIComponent(location.hash.slice(1));
  if (!name || document.getElementById(name)) return;
  let [best, length] = [null, 0];
  for (const link of document.querySelectorAll("article a[href]"))
    for (const begin of [decodeURIComponent(link.hash.slice(1)), link.textContent])
      if (link.host === location.host && link.pathname !== location.pathname)
        if (begin.length > length && (name + ".").startsWith(begin + ".")) [best, length] = [link, begin.length];
  if (best) location.replace(best.pathname + location.hash);
}

label();
filter();
forward();
