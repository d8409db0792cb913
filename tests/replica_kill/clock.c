/* A library that is loaded before all others (LD_PRELOAD). It adds the seconds in the file ESCROWMQ_TESTS_CLOCK, a
   64-bit number that may change at any time, to the machine's time. The steady clocks stay as they are. Waits for a condition
   until a time of this clock end by the machine's clock, so the seconds are subtracted again; librdkafka waits like that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static int64_t zero;
static volatile int64_t *shift = &zero;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("ESCROWMQ_TESTS_CLOCK");
    int file = name ? open(name, O_RDONLY) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) shift = found;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *time) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(id, time);
    if (!result && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) time->tv_sec += *shift;
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

/* A condition may use the steady clock, whose times are far smaller than those of any calendar. */
#define LEAST_CALENDAR_TIME 1000000000

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    struct timespec time = *until;
    if (until->tv_sec < LEAST_CALENDAR_TIME) return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, until);
    time.tv_sec -= *shift;
    return pthread_cond_clockwait(condition, mutex, CLOCK_REALTIME, &time);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    int result = pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until);
    return result == 0 ? thrd_success : result == ETIMEDOUT ? thrd_timedout : thrd_error;
}
