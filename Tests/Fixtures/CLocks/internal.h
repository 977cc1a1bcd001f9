#pragma once

#include "CLocks.h"

#include <pthread.h>
