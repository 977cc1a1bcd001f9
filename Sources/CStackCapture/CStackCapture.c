#include "CStackCapture.h"
