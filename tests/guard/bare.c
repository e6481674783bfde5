/* Removes victim/keep and ends: a program that needs no library and no loader, so that the kernel can
   start it as the interpreter of another. */
static long call(long number, const char *path) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(path) : "rcx", "r11", "memory");
  return result;
}

void _start(void) {
  call(87, "victim/keep");
  call(60, 0);
}
