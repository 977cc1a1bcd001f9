import StallReading
import StallReports

/// What `top` draws: the state at the last refresh.
struct TopContent {
    /// The page of a row, in one of its forms.
    struct Page: Hashable {
        let row: TopState.Row
        let showsFlame: Bool
    }

    var snapshot: LiveSnapshot?
    /// Nil while they are being read.
    var faults: [Fault]?
    /// The latest stalls. Nil while they are being read.
    var stalls: [StallOutline]?
    /// The open page's lines. Nil while the page is being read.
    var page: [StyledText]?
    /// What these lines are.
    var pageOf: Page?
    var notes: [String] = []

    /// What to show of this, which has just been read. Keys may have opened another page, or changed an order, since that was begun.
    ///
    /// - Parameter last: What is shown until now. Its page stays until it is read again.
    func shown(in state: TopState, after last: TopContent) -> TopContent {
        var shown = self
        shown.sort(as: state)
        if pageOf == nil || pageOf != state.wantedPage {
            let isOpen = last.pageOf.map { $0.row == state.page } ?? false
            (shown.page, shown.pageOf) = isOpen ? (last.page, last.pageOf) : (nil, nil)
        }
        return shown
    }

    /// Brings the tables into the chosen orders.
    mutating func sort(as state: TopState) {
        faults?.sort(by: state.faultOrder.isBefore)
        stalls = stalls.map { state.stallOrder.sorted($0.sorted { $0.id < $1.id }).reversed() }
    }
}
