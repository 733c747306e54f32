// Runs before anything is drawn, so that a chosen theme never flashes. Not a module for that reason.
(() => {
  const chosen = localStorage.getItem("gateway-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
