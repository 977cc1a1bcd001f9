#pragma once
#ifdef __cplusplus
extern "C" {
#endif
/// Each stands still inside a function of its own. The returned number keeps the calls from being the callers' last acts.
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
