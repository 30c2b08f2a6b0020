package users

import "testing"

// buried has processes on a GPU without a share, of which it takes long to say whose they are:
// they see thousands of mounts upon each other, and descend from dozens of others that see
// them. The last one takes 8 GiB.
const buried = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()
if libc.unshare(0x10000000 | 0x20000) != 0:
    sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write("%d %d 1" % (uid, uid))
open("/proc/self/gid_map", "w").write("%d %d 1" % (gid, gid))
libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None)
folder = (os.environ["HOME"] + "/" + "x" * 60).encode()
os.mkdir(folder)
for _ in range(8000):
    if libc.mount(folder, folder, None, 0x1000, None) != 0:
        sys.exit("mount: " + os.strerror(ctypes.get_errno()))
stay, end = os.pipe()
for _ in range(60):
    if os.fork() != 0:
        os.close(end)
        os.wait()
        os._exit(0)
ready, tell = os.pipe()
def use(bytes):
    if os.fork() != 0:
        os.read(ready, 1)
        return
    cuda, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_ulonglong()
    assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert bytes == 0 or cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(bytes)) == 0
    os.write(tell, b".")
    os.close(end)
    os.read(stay, 1)
    os._exit(0)
for _ in range(12):
    use(0)
use(8 << 30)
print("there", flush=True)
sys.stdin.read()
`

// However long it takes to say whose a process is, it does not use a GPU unseen.
func TestVeryManyMounts(t *testing.T) {
	s := newServer(t)
	s.agent()
	p := s.start("u6", true, "python3", "-c", buried)
	s.eventually("it is told", func() bool {
		for _, o := range s.list().Outside {
			if o.User == "u6" && o.Used != nil && *o.Used >= 8*gib {
				return true
			}
		}
		return false
	})
	s.ok("u1", "divvy", "run", "--memory", "1Gi", "--", "gpubench", "info")
	p.end()
}
