extension ReportReader {
    /// Reads one file, and determines the state of its process.
    ///
    /// - Parameter live: The directory's live records, read before; nil to read only the one needed.
    func load<Document: RecoverableDocument>(
        _ name: ReportFileName,
        in directory: borrowing OpenDirectory,
        _ live: LiveRuns? = nil
    ) throws(ReportError) -> Document {
        let document: Document = try parse(name, in: directory)
        let (known, isClosed) = upToDate(document, in: directory, live)
        guard isClosed else { return known }
        // A process that ended normally wrote its final version before that: perhaps after we read the file.
        let again: Document = try parse(name, in: directory)
        return again == document ? known : upToDate(again, in: directory, live).document
    }

    /// The contents of the file, unchanged.
    func parse<Document: RecoverableDocument>(
        _ name: ReportFileName,
        in directory: borrowing OpenDirectory
    ) throws(ReportError) -> Document {
        let path = directory.filePath(name.description)
        do throws(ReportError) {
            let bytes = try directory.openFile(name.description).readAll(limit: Self.maximumFileSize)
            let document = try Document(json: bytes)
            guard document.id == name.id else {
                throw ReportError(.malformed, detail: "its id is not the one in its name")
            }
            guard document.isPossible else { throw ReportError(.malformed, detail: "a duration is negative") }
            return document
        } catch {
            throw ReportError(error.code, path: path, detail: error.detail, errorNumber: error.errorNumber)
        }
    }

    /// Whether no process will write this file again. A file that cannot be parsed counts as finished.
    func isFinished(_ name: ReportFileName, in directory: borrowing OpenDirectory) -> Bool {
        do throws(ReportError) {
            switch name.content {
            case .stall: return try (load(name, in: directory) as StallReport).state != .ongoing
            case .run: return try (load(name, in: directory) as RunRecord).state != .running
            }
        } catch {
            return error.code != .permissionDenied && error.code != .io
        }
    }
}
