for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      const value = row => {
        const text = row.cells[place]?.textContent.trim() ?? "";
        const number = parseFloat(text.replace(/[,$≈×−\s]/g, found => found === "−" ? "-" : ""));
        const unit = /\bms$/.test(text) ? 1e-3 : 1;
        return Number.isNaN(number) ? text : number * unit;
      };
      const order = (one, other) => typeof one === typeof other
        ? (one > other) - (one < other) : typeof one === "number" ? -1 : 1;
      const rows = [...body.rows].sort((one, other) => order(value(one), value(other)) * (up ? 1 : -1));
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...rows);
    });
  });
}
const sections = [...document.querySelectorAll("details")];
const open = all => sections.forEach(each => { each.open = all; });
const nav = document.querySelector("nav");
const button = (says, does) => {
  const made = document.createElement("button");
  made.textContent = says;
  made.addEventListener("click", does);
  nav.append(made);
};
button("Open all", () => open(true));
button("Fold all", () => open(false));
button("Save the answer as JSON", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([document.getElementById("answer").textContent], {type: "application/json"}));
  link.download = "answer.json";
  link.click();
});
const show = () => {
  const found = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (found instanceof HTMLDetailsElement) { found.open = true; found.scrollIntoView(); }
};
addEventListener("hashchange", show);
show();
addEventListener("beforeprint", () => open(true));
