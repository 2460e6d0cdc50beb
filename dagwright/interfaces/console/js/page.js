// The current page. A change of the route starts another page.

let pageNumber = 0;
let arrivalMessage = "";

/** Goes to an address such as `#/runs/run-1?node=sum`; `message` becomes the status line of that page. */
export function go(address, message = "") {
  arrivalMessage = message;
  // Setting the same address causes no `hashchange` event.
  if (location.hash === address) startPage();
  else location.hash = address;
}

/** Start a page. The status line shows the message of the navigation, if any. */
export function startPage() {
  pageNumber += 1;
  document.getElementById("status-line").textContent = arrivalMessage;
  arrivalMessage = "";
}

/** Return a function that checks whether the page is still the same, for use after long operations. */
export function createPageCheck() {
  const startNumber = pageNumber;
  return () => startNumber === pageNumber;
}
