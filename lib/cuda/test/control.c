#define _GNU_SOURCE
#include "cuda/test/control.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void control_begin(struct control *control, const char *visible) {
    char socket[128];
    control->daemon = fork();
    if (control->daemon == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int null = open("/dev/null", O_RDWR);
        dup2(null, 1);
        setenv("CUDA_MPS_PIPE_DIRECTORY", control->pipe, 1);
        setenv("CUDA_MPS_LOG_DIRECTORY", control->pipe, 1);
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        setenv("DIVVY_SIMGPU", sim_machine_directory(), 1);
        execl(SIM_CONTROL, "nvidia-cuda-mps-control", "-f", NULL);
        _exit(127);
    }
    snprintf(socket, sizeof socket, "%s/control", control->pipe);
    for (struct stat status; stat(socket, &status) != 0;) { /* it listens a moment later */
        CHECK(waitpid(control->daemon, NULL, WNOHANG) == 0);
        usleep(1000);
    }
}

void control_end(struct control *control) {
    char socket[128];
    CHECK(kill(control->daemon, SIGKILL) == 0 &&
          waitpid(control->daemon, NULL, 0) == control->daemon);
    snprintf(socket, sizeof socket, "%s/control", control->pipe);
    unlink(socket);
}

void control_serve(struct setting *setting, const struct control *control, uint32_t flags,
                   uint32_t cores) {
    char pipe[DV_PAGE_PIPE_BYTES] = {0};
    flags |= DV_PAGE_FLAG_MPS;
    strcpy(pipe, control->pipe);
    tenant_write(&setting->tenant, "config", offsetof(dv_page_config, flags), &flags, sizeof flags);
    tenant_write(&setting->tenant, "config", offsetof(dv_page_config, mps_pipe), pipe, sizeof pipe);
    setting_write(setting, 0, offsetof(dv_page_device, cores), &cores, sizeof cores);
}
