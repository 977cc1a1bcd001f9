#pragma once
#ifdef __cplusplus
extern "C" {
#endif
/// Each stalls inside a separate function. The returned number prevents tail calls.
int native_c_direct(int seconds);
int native_c_other(int seconds);
int native_cxx_method(int seconds);
int native_cxx_lambda(int seconds);
int native_cxx_template_of_int(int seconds);
int native_cxx_template_of_double(int seconds);
int native_cxx_constructor(int seconds);
/// Calls back into its caller's language.
int native_call(int (*callback)(int), int argument);
#ifdef __cplusplus
}
#endif
