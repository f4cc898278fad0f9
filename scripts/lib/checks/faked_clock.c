#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Preloaded into Debian's cron: time passes only while it sleeps, and what it would log
   is written to file descriptor 3, behind the time. */

static time_t now, end;

__attribute__((constructor)) static void begin(void) {
    now = atoll(getenv("FAKED_FROM"));
    end = atoll(getenv("FAKED_UNTIL"));
}

time_t time(time_t *at) {
    if (at) *at = now;
    return now;
}

unsigned sleep(unsigned seconds) {
    now += seconds;
    if (now > end) {
        while (wait(NULL) > 0) continue;
        _exit(0);
    }
    return 0;
}

static void say(const char *format, va_list words) {
    char line[500];
    int length = snprintf(line, sizeof line, "%lld ", (long long)now);
    length += vsnprintf(line + length, sizeof line - length - 1, format, words);
    line[length++] = '\n';
    if (write(3, line, length) < 0) abort();
}

void syslog(int priority, const char *format, ...) {
    va_list words;
    va_start(words, format);
    say(format, words);
    va_end(words);
}

void __syslog_chk(int priority, int flag, const char *format, ...) {
    va_list words;
    va_start(words, format);
    say(format, words);
    va_end(words);
}
