"use strict";

// Progress: the server draws it, this puts it in place; the page is loaded anew once the answer is there.
const live = document.getElementById("live");

async function follow() {
  let told = null;
  try {
    told = await (await fetch(live.dataset.live)).json();
  } catch {
    // the server is away; it may come back
  }
  if (told) {
    const focused = live.contains(document.activeElement);
    live.innerHTML = told.html;
    if (focused) live.querySelector("button")?.focus();
    if (told.is_over) {
      if (live.querySelector("a")) location.reload();
      return;
    }
  }
  setTimeout(follow, 700);
}

if (live && live.querySelector("button")) setTimeout(follow, 300);

// The report says how high it is.
const report = document.getElementById("report");
window.addEventListener("message", (event) => {
  if (report && event.source === report.contentWindow && Number.isFinite(event.data?.height)) {
    report.style.height = `${Math.min(Math.max(event.data.height, 200), 100000) + 20}px`;
  }
});

// Sliders: what is finished is shown at once, what is not is computed once the slider rests.
const sliders = document.querySelector(".sliders");

if (sliders) {
  const ranges = [...sliders.querySelectorAll("input[type=range]")];
  const shown = document.getElementById("slid");
  let resting = 0;
  let turn = 0;

  const place = () => {
    const parts = ranges.map((each) => `at.${each.dataset.name}=${encodeURIComponent(valueOf(each))}`);
    return `${sliders.dataset.slide}&${parts.join("&")}`;
  };
  const valueOf = (range) => range.dataset.values.split(" ")[range.value];

  const show = async (mine) => {
    const answer = await fetch(place());
    if (!answer.ok || mine !== turn) return null;
    const told = await answer.json();
    if (mine !== turn) return null;
    shown.innerHTML = told.html;
    return told.state;
  };

  const moved = async () => {
    const mine = ++turn;
    clearTimeout(resting);
    for (const range of ranges) {
      const value = valueOf(range);
      document.getElementById(`o-${range.dataset.name}`).textContent = value;
      range.setAttribute("aria-valuetext", value);
    }
    if ((await show(mine)) === "missing" && mine === turn) resting = setTimeout(() => compute(mine), 600);
  };

  const compute = async (mine) => {
    const asked = await fetch(place(), { method: "POST" });
    if (!asked.ok) return;
    const wait = async () => {
      const state = await show(mine);
      if (state === "waiting" || state === "running") setTimeout(wait, 1000);
    };
    wait();
  };

  for (const range of ranges) range.addEventListener("input", moved);
  moved();
}
