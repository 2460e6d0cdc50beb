// The current page: its dialogs and status line end when the route changes.

let shown = 0;
let arrival = "";

/** Goes to an address such as `#/runs/run-1?node=sum`; `words` become the status line of the page there. */
export function go(address, words = "") {
  arrival = words;
  // The same address is no navigation, and no event follows.
  if (location.hash === address) turnPage();
  else location.hash = address;
}

/** Starts a page: the status line holds only what the navigation itself has to report. */
export function turnPage() {
  shown += 1;
  document.getElementById("said").textContent = arrival;
  arrival = "";
}

/** Returns a function that reports whether the present page is still shown, for work that takes a while. */
export function onThisPage() {
  const mine = shown;
  return () => mine === shown;
}
