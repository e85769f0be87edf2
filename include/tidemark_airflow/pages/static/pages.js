// The pages work without this file. It follows the theme of the page around this one, and opens Airflow's own pages there.
(() => {
  const root = document.documentElement;
  const host = (() => {
    try {
      return window.parent === window ? null : window.parent.document;
    } catch {
      return null; // framed by a page that does not allow it
    }
  })();

  const follow = () => {
    const names = host ? host.documentElement.classList : [];
    const stored = host ? null : localStorage.getItem("theme");
    const theme = ["dark", "light"].find((name) => (host ? names.contains(name) : stored === name));
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  follow();
  if (host) new MutationObserver(follow).observe(host.documentElement, { attributeFilter: ["class"] });

  // The frame may not navigate the page around it, but a click in that page may.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (!link || !host || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const outside = host.createElement("a");
    outside.href = link.href;
    host.body.append(outside);
    outside.click();
    outside.remove();
  });
})();

// What changes while a person watches: loaded again every few seconds, replaced only where it differs.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll("[data-live]")) {
    let paused = false;
    const button = document.createElement("button");
    button.type = "button";
    const name = () => (button.textContent = paused ? "Follow live" : "Pause");
    button.addEventListener("click", () => { paused = !paused; name(); });
    name();
    place.before(button);
    const load = async () => {
      if (paused || document.hidden) return;
      const answer = await fetch(place.dataset.live).catch(() => null);
      if (!answer?.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const [now, then] = ["tbody", "tbody"].map((tag, at) => (at ? place : fresh).querySelector(tag));
      if (!now || !then) {
        const whole = fresh.querySelector("[data-fresh]");
        if (whole && whole.innerHTML !== place.firstElementChild.innerHTML) place.replaceChildren(whole);
        return;
      }
      // The table keeps its place and its scrolling.
      if (now.innerHTML !== then.innerHTML) then.replaceWith(now);
      place.querySelector(".lead")?.replaceWith(fresh.querySelector(".lead"));
    };
    setInterval(load, 5000);
  }

  // One day of the calendar is a stop for the Tab key; the arrow keys go from day to day.
  for (const calendar of document.querySelectorAll("[data-calendar]")) {
    const days = [...calendar.querySelectorAll("a")];
    const select = (day) => days.forEach((other) => (other.tabIndex = other === day ? 0 : -1));
    select(days.at(-1));
    calendar.addEventListener("keydown", (event) => {
      const at = days.indexOf(event.target);
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7, Home: -at, End: days.length - 1 - at }[event.key];
      if (at < 0 || step === undefined) return;
      event.preventDefault();
      const next = days[Math.min(Math.max(at + step, 0), days.length - 1)];
      select(next);
      next.focus();
    });
  }
});
