/* Memory that is filled, by all the driver's functions for it. None of them waits, with or without
 * a stream. */
#include "cuda/time/copy.h"

#define filled(bytes) move_filling(bytes)

DOES(cuMemsetD16, launch_legacy(NULL), filled((uint64_t)count * 2),
     (CUdeviceptr_v1 to, unsigned short value, unsigned count), to, value, count)
GIVES(cuMemsetD16Async, launch_legacy(stream), filled((uint64_t)count * 2),
      (CUdeviceptr to, unsigned short value, size_t count, CUstream stream), to, value, count,
      stream)
GIVES(cuMemsetD16Async_ptsz, launch_own(stream), filled((uint64_t)count * 2),
      (CUdeviceptr to, unsigned short value, size_t count, CUstream stream), to, value, count,
      stream)
DOES(cuMemsetD16_v2, launch_legacy(NULL), filled((uint64_t)count * 2),
     (CUdeviceptr to, unsigned short value, size_t count), to, value, count)
DOES(cuMemsetD16_v2_ptds, launch_own(NULL), filled((uint64_t)count * 2),
     (CUdeviceptr to, unsigned short value, size_t count), to, value, count)
DOES(cuMemsetD2D16, launch_legacy(NULL), filled((uint64_t)width * height * 2),
     (CUdeviceptr_v1 to, unsigned pitch, unsigned short value, unsigned width, unsigned height), to,
     pitch, value, width, height)
GIVES(cuMemsetD2D16Async, launch_legacy(stream), filled((uint64_t)width * height * 2),
      (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
       CUstream stream),
      to, pitch, value, width, height, stream)
GIVES(cuMemsetD2D16Async_ptsz, launch_own(stream), filled((uint64_t)width * height * 2),
      (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
       CUstream stream),
      to, pitch, value, width, height, stream)
DOES(cuMemsetD2D16_v2, launch_legacy(NULL), filled((uint64_t)width * height * 2),
     (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height), to, pitch,
     value, width, height)
DOES(cuMemsetD2D16_v2_ptds, launch_own(NULL), filled((uint64_t)width * height * 2),
     (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height), to, pitch,
     value, width, height)
DOES(cuMemsetD2D32, launch_legacy(NULL), filled((uint64_t)width * height * 4),
     (CUdeviceptr_v1 to, unsigned pitch, unsigned value, unsigned width, unsigned height), to,
     pitch, value, width, height)
GIVES(cuMemsetD2D32Async, launch_legacy(stream), filled((uint64_t)width * height * 4),
      (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream),
      to, pitch, value, width, height, stream)
GIVES(cuMemsetD2D32Async_ptsz, launch_own(stream), filled((uint64_t)width * height * 4),
      (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream),
      to, pitch, value, width, height, stream)
DOES(cuMemsetD2D32_v2, launch_legacy(NULL), filled((uint64_t)width * height * 4),
     (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height), to, pitch, value,
     width, height)
DOES(cuMemsetD2D32_v2_ptds, launch_own(NULL), filled((uint64_t)width * height * 4),
     (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height), to, pitch, value,
     width, height)
DOES(cuMemsetD2D8, launch_legacy(NULL), filled((uint64_t)width *height),
     (CUdeviceptr_v1 to, unsigned pitch, unsigned char value, unsigned width, unsigned height), to,
     pitch, value, width, height)
GIVES(cuMemsetD2D8Async, launch_legacy(stream), filled((uint64_t)width *height),
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
       CUstream stream),
      to, pitch, value, width, height, stream)
GIVES(cuMemsetD2D8Async_ptsz, launch_own(stream), filled((uint64_t)width *height),
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
       CUstream stream),
      to, pitch, value, width, height, stream)
DOES(cuMemsetD2D8_v2, launch_legacy(NULL), filled((uint64_t)width *height),
     (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height), to, pitch,
     value, width, height)
DOES(cuMemsetD2D8_v2_ptds, launch_own(NULL), filled((uint64_t)width *height),
     (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height), to, pitch,
     value, width, height)
DOES(cuMemsetD32, launch_legacy(NULL), filled((uint64_t)count * 4),
     (CUdeviceptr_v1 to, unsigned value, unsigned count), to, value, count)
GIVES(cuMemsetD32Async, launch_legacy(stream), filled((uint64_t)count * 4),
      (CUdeviceptr to, unsigned value, size_t count, CUstream stream), to, value, count, stream)
GIVES(cuMemsetD32Async_ptsz, launch_own(stream), filled((uint64_t)count * 4),
      (CUdeviceptr to, unsigned value, size_t count, CUstream stream), to, value, count, stream)
DOES(cuMemsetD32_v2, launch_legacy(NULL), filled((uint64_t)count * 4),
     (CUdeviceptr to, unsigned value, size_t count), to, value, count)
DOES(cuMemsetD32_v2_ptds, launch_own(NULL), filled((uint64_t)count * 4),
     (CUdeviceptr to, unsigned value, size_t count), to, value, count)
DOES(cuMemsetD8, launch_legacy(NULL), filled(count),
     (CUdeviceptr_v1 to, unsigned char value, unsigned count), to, value, count)
GIVES(cuMemsetD8Async, launch_legacy(stream), filled(count),
      (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), to, value, count,
      stream)
GIVES(cuMemsetD8Async_ptsz, launch_own(stream), filled(count),
      (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), to, value, count,
      stream)
DOES(cuMemsetD8_v2, launch_legacy(NULL), filled(count),
     (CUdeviceptr to, unsigned char value, size_t count), to, value, count)
DOES(cuMemsetD8_v2_ptds, launch_own(NULL), filled(count),
     (CUdeviceptr to, unsigned char value, size_t count), to, value, count)
