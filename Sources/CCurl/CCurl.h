#pragma once
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

// Swift cannot call functions with a variable number of arguments. Each of these sets options of one type.

static inline CURLcode curl_set_number(CURL *handle, CURLoption option, long value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode curl_set_text(CURL *handle, CURLoption option, const char *value) {
    return curl_easy_setopt(handle, option, value);
}

static inline CURLcode curl_set_body(CURL *handle, const void *bytes, curl_off_t count) {
    curl_easy_setopt(handle, CURLOPT_POST, 1L);
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, count);
    // libcurl copies the bytes.
    return curl_easy_setopt(handle, CURLOPT_COPYPOSTFIELDS, bytes ? bytes : "");
}

static inline CURLcode curl_set_headers(CURL *handle, struct curl_slist *headers) {
    return curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
}

typedef size_t (*curl_consumer)(char *bytes, size_t size, size_t count, void *context);

static inline CURLcode curl_set_consumers(CURL *handle, curl_consumer header, curl_consumer body, void *context) {
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, context);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, body);
    return curl_easy_setopt(handle, CURLOPT_WRITEDATA, context);
}

typedef int (*curl_watcher)(void *context, curl_off_t, curl_off_t, curl_off_t, curl_off_t);

// The watcher is called about once a second; if it returns anything but 0, the transfer ends.
static inline CURLcode curl_set_watcher(CURL *handle, curl_watcher watcher, void *context) {
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, context);
    return curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, watcher);
}

// A search for the host's address that is not awaited any more is left to its thread, which ends by itself. By default libcurl waits for it.
static inline void curl_leave_search(CURL *handle) {
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);
#else
    (void)handle;
#endif
}

static inline CURLcode curl_set_error_text(CURL *handle, char *text) {
    return curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, text);
}

static inline long curl_status(CURL *handle) {
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

// Why the system made no connection (errno(3)). 0 if it did, or if that is not known.
static inline int curl_system_error(CURL *handle) {
    long error = 0;
    curl_easy_getinfo(handle, CURLINFO_OS_ERRNO, &error);
    return (int)error;
}

typedef size_t (*curl_producer)(char *bytes, size_t size, size_t count, void *context);

// A mail. The producer writes the next part of it into the buffer, and returns its size; 0 at the end. libcurl does not copy the list.
static inline CURLcode curl_set_mail(
    CURL *handle, const char *sender, struct curl_slist *recipients, curl_producer producer, void *context
) {
    curl_easy_setopt(handle, CURLOPT_MAIL_FROM, sender);
    curl_easy_setopt(handle, CURLOPT_MAIL_RCPT, recipients);
    curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(handle, CURLOPT_READFUNCTION, producer);
    return curl_easy_setopt(handle, CURLOPT_READDATA, context);
}
