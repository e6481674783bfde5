/* Included before every file of the grammar. It asks the C library what kind a character is, with any
   character that a line may hold: some libraries answer by a table of 384 entries that is read beyond its
   end, and they disagree about what lies beyond ASCII. A shell knows ASCII only. Other libraries
   have files of assembler, which gets the same options and would not know what to do with it. */
#ifndef __ASSEMBLER__
#include <ctype.h>
#include <wctype.h>

static inline int substrate_digit(unsigned c) { return c - '0' < 10; }
static inline int substrate_alpha(unsigned c) { return (c | 32) - 'a' < 26; }
static inline int substrate_alnum(unsigned c) { return substrate_digit(c) || substrate_alpha(c); }
static inline int substrate_space(unsigned c) { return c == ' ' || c - '\t' < 5; }
static inline int substrate_print(unsigned c) { return c - ' ' < 95; }

#undef isdigit
#undef isprint
#undef iswdigit
#undef iswalpha
#undef iswalnum
#undef iswspace
#define isdigit(c) substrate_digit((unsigned)(c))
#define isprint(c) substrate_print((unsigned)(c))
#define iswdigit(c) substrate_digit((unsigned)(c))
#define iswalpha(c) substrate_alpha((unsigned)(c))
#define iswalnum(c) substrate_alnum((unsigned)(c))
#define iswspace(c) substrate_space((unsigned)(c))
#endif
