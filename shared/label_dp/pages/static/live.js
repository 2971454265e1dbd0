// Keeps what changes on a page as the service has it, and lets a page follow its sliders. Without scripts a page is
// loaded again by itself or by hand, and a form is sent by its button.
"use strict";
(() => {
  let latest = 0; // of two answers on their way only the later one counts
  let timer = 0;

  // Puts the part with this id in as the service has it now; says whether to look again.
  const take = async (id, address) => {
    const mine = ++latest;
    try {
      const answer = await fetch(address, { credentials: "same-origin" });
      if (!answer.ok) return answer.status >= 500;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const before = document.getElementById(id), after = page.getElementById(id);
      if (mine === latest && before && after && before.outerHTML !== after.outerHTML) before.replaceWith(after);
    } catch (problem) {
      // the service is away for a moment; the next look tells
    }
    return mine === latest;
  };

  const again = () => {
    window.clearTimeout(timer);
    const live = document.querySelector("[data-live]");
    if (!live) return;
    timer = window.setTimeout(async () => {
      if (await take(live.id, window.location.href)) again();
    }, 1000 * Number(live.dataset.live));
  };

  const follow = (form) => {
    const show = async () => {
      const address = `${form.action}?${new URLSearchParams(new FormData(form))}`;
      window.history.replaceState(null, "", address);
      if (await take(form.dataset.follow, address)) again();
    };
    let pause = 0;
    form.addEventListener("input", (event) => {
      const figures = event.target.dataset.figures;
      if (figures) {
        const figure = figures.split(" ")[Number(event.target.value)];
        const told = Number(figure).toLocaleString("en-US", { maximumFractionDigits: 9 });
        event.target.nextElementSibling.textContent = told;
        event.target.setAttribute("aria-valuetext", told);
      }
      window.clearTimeout(timer);
      window.clearTimeout(pause);
      pause = window.setTimeout(show, 120);
    });
    form.addEventListener("submit", (event) => {
      if (event.submitter?.formMethod === "post") return; // a button that does more than show
      event.preventDefault();
      show();
    });
  };

  // Offers the columns of a CSV file, whose first line is read here, in the lists that ask for one.
  const offer = async (input) => {
    const text = input.files.length ? await input.files[0].slice(0, 65536).text() : "";
    const [head] = text.replace(/^\ufeff/, "").match(/^(?:"(?:[^"]|"")*"|[^"\r\n])*/);
    const parts = [...head.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)];
    const names = parts.map(([, quoted, plain]) => (quoted === undefined ? plain : quoted.replaceAll('""', '"')));
    for (const list of input.form.querySelectorAll("select[data-columns]")) {
      const chosen = names.includes(list.value) ? list.value : names.includes(list.dataset.columns) ? list.dataset.columns : "";
      list.replaceChildren(list.options[0], ...names.filter(Boolean).map((name) => new Option(name, name)));
      list.value = chosen;
    }
  };

  const listen = (live) => {
    const stream = new EventSource(live.dataset.events);
    const bar = live.querySelector("progress");
    const step = live.querySelector("[data-step]");
    let drawn = 0, due = 0;
    const draw = () => {
      due = 0;
      drawn = Date.now();
      take("curve", window.location.href);
    };
    stream.addEventListener("progress", (event) => {
      const row = JSON.parse(event.data);
      if (bar) bar.value = row.share;
      if (step) step.textContent = row.step;
      // an event too early for a new picture is not lost: the last one is always drawn
      if (document.getElementById("curve") && !due) due = window.setTimeout(draw, Math.max(0, drawn + 1500 - Date.now()));
    });
    for (const end of ["succeeded", "failed", "cancelled"]) {
      stream.addEventListener(end, () => { stream.close(); window.location.reload(); });
    }
  };

  for (const form of document.querySelectorAll("form[data-follow]")) follow(form);
  for (const input of document.querySelectorAll("input[data-header]")) {
    input.addEventListener("change", () => offer(input));
    if (input.files.length) offer(input); // chosen before this ran, or before somebody came back
  }
  const live = document.querySelector("[data-live]");
  if (live && live.dataset.events && window.EventSource) listen(live);
  else again();
})();
