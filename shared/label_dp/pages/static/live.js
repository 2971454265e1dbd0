// Keeps what changes on a page as the service has it. Without scripts the page is reloaded, or loaded again by hand.
"use strict";
(() => {
  const live = document.querySelector("[data-live]");
  if (!live) return;
  const again = async () => {
    const before = document.querySelector("[data-live]");
    if (!before) return;
    try {
      const answer = await fetch(window.location.href, { credentials: "same-origin" });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const after = page.getElementById(before.id);
        if (after && after.innerHTML !== before.innerHTML) before.replaceWith(after);
      } else if (answer.status < 500) return;
    } catch (problem) {
      // the service is away for a moment; the next look tells
    }
    window.setTimeout(again, 1000 * Number(before.dataset.live));
  };
  const events = live.dataset.events;
  if (events && window.EventSource) {
    const stream = new EventSource(events);
    const bar = live.querySelector("progress");
    const step = live.querySelector("[data-step]");
    const follow = (event) => {
      const row = JSON.parse(event.data);
      if (bar) bar.value = row.share;
      if (step) step.textContent = row.step;
    };
    stream.addEventListener("progress", follow);
    for (const end of ["succeeded", "failed", "cancelled"]) {
      stream.addEventListener(end, () => { stream.close(); window.location.reload(); });
    }
  } else {
    window.setTimeout(again, 1000 * Number(live.dataset.live));
  }
})();
