# What our files may need of the C library. They are loaded by programs of other people, in containers as old as
# CentOS 7's (GLIBC_2.17), so they are linked against a library that has no newer names: whoever uses one gets
# "undefined reference". lib/libc/kernel.h has what is missing then.
#
# LINK_LIBC stands where a link's libraries stand. The instrumented builds use this machine's C library. The files that
# older C libraries have apart are named also where they are empty.
LIBC_STUB := $(if $(SAN),,$(B)/obj/libc/libc.so.6)
LIBM_STUB := $(if $(SAN),-lm,$(B)/obj/libc/libm.so.6)
LINK_LIBC := $(if $(SAN),-lpthread -ldl,-nodefaultlibs -Wl,--no-as-needed $(LIBC_STUB) -l:libpthread.so.0 -l:libdl.so.2 \
	-Wl,--as-needed -lgcc -l:libc_nonshared.a)

$(B)/obj/libc/libc.so.6 $(B)/obj/libc/libm.so.6: lib/libc/stub.sh lib/libc/names.sh
	$(call step,LINK)
	mkdir -p $(@D)
	lib/libc/stub.sh $@ $(CC)
