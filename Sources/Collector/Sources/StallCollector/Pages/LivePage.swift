import StallStore

/// The page with the latest stalls, and with those that arrive while it is open.
struct LivePage {
    let title = "Live"
    let team: String
    /// The page shows arrivals after this place.
    let place: Int64
    /// The feed's address, which ends where the place belongs.
    let feed: String
    let rows: [LiveStall]

    /// Adds each new stall at the top, and updates the row of a stall that changed. Names are inserted as text, never as markup.
    static let script = """
        "use strict";
        const list = document.getElementById("stalls");
        const state = document.getElementById("state");
        const known = new Map([...list.children].map(row => [row.dataset.id, row]));
        function cell(row, text, kind) {
          const cell = row.insertCell();
          if (kind) cell.className = kind;
          cell.textContent = text;
          return cell;
        }
        function add(stall) {
          let row = known.get(stall.id);
          if (row) {
            row.replaceChildren();
          } else {
            row = list.insertRow(0);
            row.dataset.id = stall.id;
            row.className = "new";
            known.set(stall.id, row);
          }
          const link = document.createElement("a");
          link.href = stall.link;
          link.textContent = stall.began;
          cell(row, "").append(link);
          cell(row, stall.length, "number");
          const code = document.createElement("code");
          code.textContent = stall.culprit;
          cell(row, "").append(code);
          for (const text of [stall.verdict, stall.label, stall.service, stall.release, stall.host]) cell(row, text);
          while (list.rows.length > 500) {
            known.delete(list.rows[list.rows.length - 1].dataset.id);
            list.deleteRow(-1);
          }
        }
        let place = list.dataset.place;
        function follow() {
          const source = new EventSource(list.dataset.feed + place);
          source.onmessage = event => {
            // Of several stalls with one place, only the last has an id.
            place = event.lastEventId || place;
            add(JSON.parse(event.data));
          };
          source.onopen = () => { state.textContent = "Connected: what comes is shown at once."; };
          source.onerror = () => {
            state.textContent = "The collector cannot be reached just now; nothing will be missed.";
            // After an answer that is no stream, such as 502 of a proxy or 503, a browser does not try again.
            if (source.readyState === EventSource.CLOSED) setTimeout(follow, 5000);
          };
        }
        follow();

        """
}
