/* The theme: light, dark, or as the system has it. */

function themeColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const THEMES = ["auto", "light", "dark"];

function stored(name, value) {
  // A browser may keep no storage for pages from a disk.
  try {
    if (value === undefined) return localStorage.getItem(name);
    localStorage.setItem(name, value);
  } catch {
    return null;
  }
  return value;
}

function applyTheme(theme) {
  const dark = theme === "dark" || (theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.documentElement.classList.toggle("dark", dark);
  document.getElementById("theme-button").textContent = { auto: "Theme: system", light: "Theme: light", dark: "Theme: dark" }[theme];
}

/* The button that changes the theme; `redraw` is called whenever it has changed. */
function themeButton(redraw) {
  let theme = THEMES.includes(stored("kernelscope-theme")) ? stored("kernelscope-theme") : "auto";
  const change = () => {
    applyTheme(theme);
    redraw();
  };
  document.getElementById("theme-button").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    stored("kernelscope-theme", theme);
    change();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change);
  change();
}
