#include "CRunLoopShims.h"
