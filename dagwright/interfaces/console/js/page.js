// The current page: its dialogs and status line end when the route changes.

let pageNumber = 0;
let arrival = "";

/** Goes to an address such as `#/runs/run-1?node=sum`; `message` becomes the status line of the page there. */
export function go(address, message = "") {
  arrival = message;
  // The same address is not a navigation, and causes no event.
  if (location.hash === address) turnPage();
  else location.hash = address;
}

/** Start a page: the status line shows only the message of the navigation. */
export function turnPage() {
  pageNumber += 1;
  document.getElementById("status-line").textContent = arrival;
  arrival = "";
}

/** A function that returns whether the current page is still shown, for long operations. */
export function onThisPage() {
  const mine = pageNumber;
  return () => mine === pageNumber;
}
