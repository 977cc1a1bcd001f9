#pragma once
#include <elf.h>
