// Asks the hardware what a TMA load in im2col mode does, without Triton: each
// case becomes a descriptor encoded by the driver and a load issued in PTX.
//
// Reads one case a line from a file or the standard input, writes one answer a
// line. Shapes, strides, corners and coordinates have the order of Triton,
// outermost first; the driver and the instruction get them reversed.

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

const char *const usage =
    R"(usage: tma-im2col [FILE]

Loads blocks by TMA in im2col mode and writes what arrived. FILE, or the
standard input, holds one case a line, a flat JSON object:
  type             uint8 uint16 uint32 int32 float16 bfloat16 float32 tfloat32
  shape            of the tensor: N, [D, [H,]] W, C
  strides          in elements, one a dimension, the last of them 1
  lower, upper     corners, one a spatial dimension
  element_strides  one a dimension
  block            pixels, channels
  swizzle          0, 32, 64 or 128
  nan              1: fill with NaN
  coordinates      one a dimension
  offsets          one a spatial dimension
  seed             of the tensor: byte k holds hash(k, seed)
  shift            bytes from an aligned address to the tensor; may be left out
An answer has
  encoded          0, or the driver's error
  arrived          1 when the barrier's phase ended at the block's bytes
  bytes            that the barrier counted; -1: not a multiple of 16
  overrun          1 when bytes past the block were written
  block            the block's bytes in shared memory, in hexadecimal
Exit status: 0; 1 for a case that is wrong; 2 where there is no GPU that has
the mode; 3 where a launch failed, which ends the context.
)";

constexpr uint32_t poison = 0xA5;
constexpr uint32_t guardBytes = 128;
constexpr uint32_t swizzleRepeat = 1024;
constexpr uint64_t arenaBytes = 1ull << 28;
constexpr int maxRank = 5;
constexpr int exitBadCase = 1, exitNoGpu = 2, exitLaunchFailed = 3;

void check(cudaError_t error, const char *what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " +
                             cudaGetErrorString(error));
}

//===----------------------------------------------------------------------===//
// Cases
//===----------------------------------------------------------------------===//

/// A flat JSON object whose values are strings, integers and arrays of those.
class Case {
public:
  explicit Case(const std::string &line) : text(line) {
    expect('{');
    while (!accept('}')) {
      std::string name = string();
      expect(':');
      if (accept('[')) {
        numbers[name];
        while (!accept(']')) {
          numbers[name].push_back(number());
          accept(',');
        }
      } else if (peek() == '"') {
        strings[name] = string();
      } else {
        numbers[name] = {number()};
      }
      accept(',');
    }
  }

  const std::vector<int64_t> &list(const std::string &name,
                                   size_t length) const {
    auto found = numbers.find(name);
    if (found == numbers.end() || (length && found->second.size() != length))
      throw std::runtime_error("a case needs '" + name + "' with " +
                               std::to_string(length) + " numbers");
    return found->second;
  }

  int64_t number(const std::string &name) const { return list(name, 1)[0]; }

  int64_t number(const std::string &name, int64_t otherwise) const {
    return numbers.count(name) ? number(name) : otherwise;
  }

  const std::string &word(const std::string &name) const {
    auto found = strings.find(name);
    if (found == strings.end())
      throw std::runtime_error("a case needs the string '" + name + "'");
    return found->second;
  }

private:
  char peek() {
    while (at < text.size() && isspace(static_cast<unsigned char>(text[at])))
      ++at;
    return at < text.size() ? text[at] : '\0';
  }

  bool accept(char wanted) {
    bool same = peek() == wanted;
    at += same;
    return same;
  }

  void expect(char wanted) {
    if (!accept(wanted))
      throw std::runtime_error("expected '" + std::string(1, wanted) +
                               "' at character " + std::to_string(at + 1));
  }

  std::string string() {
    expect('"');
    size_t end = text.find('"', at);
    if (end == std::string::npos)
      throw std::runtime_error("a string does not end");
    std::string value = text.substr(at, end - at);
    at = end + 1;
    return value;
  }

  int64_t number() {
    peek();
    size_t length = 0;
    try {
      int64_t value = std::stoll(text.substr(at), &length);
      at += length;
      return value;
    } catch (const std::logic_error &) {
      throw std::runtime_error("expected an integer at character " +
                               std::to_string(at + 1));
    }
  }

  const std::string text;
  size_t at = 0;
  std::map<std::string, std::vector<int64_t>> numbers;
  std::map<std::string, std::string> strings;
};

struct Type {
  CUtensorMapDataType value;
  uint32_t bytes;
};

const std::map<std::string, Type> types = {
    {"uint8", {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1}},
    {"uint16", {CU_TENSOR_MAP_DATA_TYPE_UINT16, 2}},
    {"uint32", {CU_TENSOR_MAP_DATA_TYPE_UINT32, 4}},
    {"int32", {CU_TENSOR_MAP_DATA_TYPE_INT32, 4}},
    {"float16", {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2}},
    {"bfloat16", {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2}},
    {"float32", {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4}},
    {"tfloat32", {CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 4}},
};

const std::map<int64_t, CUtensorMapSwizzle> swizzles = {
    {0, CU_TENSOR_MAP_SWIZZLE_NONE},
    {32, CU_TENSOR_MAP_SWIZZLE_32B},
    {64, CU_TENSOR_MAP_SWIZZLE_64B},
    {128, CU_TENSOR_MAP_SWIZZLE_128B},
};

template <typename Key, typename Value>
const Value &lookUp(const std::map<Key, Value> &table, const Key &key,
                    const char *what) {
  auto found = table.find(key);
  if (found == table.end())
    throw std::runtime_error(std::string("unknown ") + what);
  return found->second;
}

template <typename Target>
void reversed(const std::vector<int64_t> &from, Target *to) {
  for (size_t i = 0; i < from.size(); ++i)
    to[from.size() - 1 - i] = static_cast<Target>(from[i]);
}

//===----------------------------------------------------------------------===//
// Device code
//===----------------------------------------------------------------------===//

/// Where a load starts and what it brings; innermost first.
struct Load {
  int rank;
  int coordinates[maxRank];
  uint16_t offsets[maxRank - 2];
  uint32_t bytes;
};

struct Answer {
  int arrived;
  int bytes;
};

/// The tensor's contents: an integer hash of place and seed.
__global__ void fillTensor(uint8_t *data, uint64_t count, uint32_t seed) {
  uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t k = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; k < count;
       k += stride) {
    uint32_t hash = uint32_t(k) * 2654435761u + seed * 40503u;
    hash ^= hash >> 15;
    hash *= 2246822519u;
    hash ^= hash >> 13;
    data[k] = uint8_t(hash);
  }
}

__device__ uint32_t sharedAddress(const void *pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void initBarrier(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier)
               : "memory");
}

__device__ void arriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
      "r"(bytes)
      : "memory");
}

/// As if so many bytes had been copied.
__device__ void completeBytes(uint32_t barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.complete_tx.shared::cta.relaxed.cta.b64 [%0], %1;" ::"r"(
          barrier),
      "r"(bytes)
      : "memory");
}

__device__ bool firstPhaseEnded(uint32_t barrier) {
  uint32_t ended;
  asm volatile("{\n.reg .pred p;\n"
               "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0;\n"
               "selp.u32 %0, 1, 0, p;\n}"
               : "=r"(ended)
               : "r"(barrier)
               : "memory");
  return ended;
}

__device__ void issue(const CUtensorMap *map, const Load &load, uint32_t block,
                      uint32_t barrier) {
  const int *c = load.coordinates;
  const uint16_t *o = load.offsets;
  if (load.rank == 3)
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col."
                 "mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5], {%6};" ::"r"(block),
                 "l"(map), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(barrier),
                 "h"(o[0])
                 : "memory");
  else if (load.rank == 4)
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col."
                 "mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(block),
                 "l"(map), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]),
                 "r"(barrier), "h"(o[0]), "h"(o[1])
                 : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col."
        "mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10};" ::"r"(block),
        "l"(map), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]),
        "r"(barrier), "h"(o[0]), "h"(o[1]), "h"(o[2])
        : "memory");
}

/// Spin for a while, so that a load without a barrier to wait for has landed.
__device__ void pause(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

__global__ void loadBlock(const __grid_constant__ CUtensorMap map, Load load,
                          uint8_t *block, Answer *answer) {
  extern __shared__ uint8_t memory[];
  // The pattern of a swizzle repeats every 1024 bytes of addresses.
  uint8_t *buffer =
      memory +
      (swizzleRepeat - sharedAddress(memory) % swizzleRepeat) % swizzleRepeat;
  __shared__ uint64_t barriers[2];
  uint32_t arrival = sharedAddress(&barriers[0]);
  uint32_t counter = sharedAddress(&barriers[1]);
  for (uint32_t k = threadIdx.x; k < load.bytes + guardBytes; k += blockDim.x)
    buffer[k] = poison;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  if (threadIdx.x == 0) {
    initBarrier(arrival);
    initBarrier(counter);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  // The block, and whether the phase ends at the bytes that it should.
  if (threadIdx.x == 0) {
    arriveExpecting(arrival, load.bytes);
    issue(&map, load, sharedAddress(buffer), arrival);
    constexpr long long patience = 200'000'000; // cycles, 0.1 s
    long long start = clock64();
    while (!firstPhaseEnded(arrival) && clock64() - start < patience) {
    }
    answer->arrived = firstPhaseEnded(arrival);
  }
  __syncthreads();
  for (uint32_t k = threadIdx.x; k < load.bytes + guardBytes; k += blockDim.x)
    block[k] = buffer[k];
  __syncthreads();

  // The count of bytes: the phase is made to expect more than can come, and
  // what the load leaves of it is completed in small steps until it ends.
  if (threadIdx.x == 0) {
    constexpr int step = 16;
    int left = int(load.bytes) + 1024;
    arriveExpecting(counter, left);
    issue(&map, load, sharedAddress(buffer), counter);
    pause(100'000);
    while (left > -step && !firstPhaseEnded(counter)) {
      completeBytes(counter, step);
      left -= step;
    }
    answer->bytes = firstPhaseEnded(counter) ? left : -1;
  }
}

//===----------------------------------------------------------------------===//
// Asking
//===----------------------------------------------------------------------===//

class Oracle {
public:
  Oracle() {
    check(cudaMalloc(&arena, arenaBytes), "the tensor's memory");
    check(cudaMalloc(&answer, sizeof(Answer)), "memory");
    check(cudaDeviceGetAttribute(&sharedBytes,
                                 cudaDevAttrMaxSharedMemoryPerBlockOptin, 0),
          "the size of shared memory");
    check(cudaMalloc(&block, sharedBytes), "the block's memory");
    check(cudaFuncSetAttribute(loadBlock,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               sharedBytes - reservedBytes),
          "shared memory");
    cudaDriverEntryPointQueryResult found;
    void *entry = nullptr;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeIm2col", &entry,
                                           12000, cudaEnableDefault, &found),
          "cuTensorMapEncodeIm2col");
    if (found != cudaDriverEntryPointSuccess)
      throw std::runtime_error("the driver has no cuTensorMapEncodeIm2col");
    encode = reinterpret_cast<decltype(encode)>(entry);
    check(cudaGetDriverEntryPointByVersion("cuGetErrorName", &entry, 12000,
                                           cudaEnableDefault, &found),
          "cuGetErrorName");
    errorName = reinterpret_cast<decltype(errorName)>(entry);
  }

  std::string ask(const Case &question) {
    const auto &shape = question.list("shape", 0);
    size_t rank = shape.size();
    if (rank < 3 || rank > maxRank)
      throw std::runtime_error("a shape has 3, 4 or 5 dimensions");
    const auto &strides = question.list("strides", rank);
    const Type &type = lookUp(types, question.word("type"), "type");
    const auto &sizes = question.list("block", 2);

    uint64_t extents[maxRank], pitches[maxRank];
    uint32_t elementStrides[maxRank];
    int lower[maxRank], upper[maxRank];
    reversed(shape, extents);
    reversed(strides, pitches); // the innermost, which is 1, first
    for (size_t i = 0; i + 1 < rank; ++i)
      pitches[i] = pitches[i + 1] * type.bytes;
    reversed(question.list("element_strides", rank), elementStrides);
    reversed(question.list("lower", rank - 2), lower);
    reversed(question.list("upper", rank - 2), upper);

    int64_t shift = question.number("shift", 0);
    CUtensorMap map;
    CUresult encoded =
        encode(&map, type.value, uint32_t(rank), arena + shift, extents,
               pitches, lower, upper, uint32_t(sizes[1]), uint32_t(sizes[0]),
               elementStrides, CU_TENSOR_MAP_INTERLEAVE_NONE,
               lookUp(swizzles, question.number("swizzle"), "swizzle"),
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               question.number("nan")
                   ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
                   : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (encoded != CUDA_SUCCESS) {
      const char *name = "an unknown error";
      errorName(encoded, &name);
      return std::string("\"encoded\": \"") + name + "\"";
    }

    Load load{};
    load.rank = int(rank);
    reversed(question.list("coordinates", rank), load.coordinates);
    reversed(question.list("offsets", rank - 2), load.offsets);
    load.bytes = uint32_t(sizes[0] * sizes[1] * type.bytes);
    uint64_t span = shift + type.bytes;
    for (size_t i = 0; i < rank; ++i)
      span += uint64_t(shape[i] - 1) * strides[i] * type.bytes;
    if (span > arenaBytes ||
        load.bytes + guardBytes + swizzleRepeat + reservedBytes >
            uint32_t(sharedBytes))
      throw std::runtime_error("the tensor or the block is too large");

    // Memory past the tensor is not that of the case before.
    uint64_t filled = std::min(arenaBytes, span + (1 << 16));
    fillTensor<<<64, 256>>>(arena, filled, uint32_t(question.number("seed")));
    loadBlock<<<1, 128, load.bytes + guardBytes + swizzleRepeat>>>(
        map, load, block, answer);
    check(cudaGetLastError(), "the launch");
    check(cudaDeviceSynchronize(), "the load");
    Answer found;
    std::vector<uint8_t> bytes(load.bytes + guardBytes);
    check(cudaMemcpy(&found, answer, sizeof found, cudaMemcpyDeviceToHost),
          "the answer");
    check(cudaMemcpy(bytes.data(), block, bytes.size(), cudaMemcpyDeviceToHost),
          "the block");
    bool overrun = false;
    for (size_t k = load.bytes; k < bytes.size(); ++k)
      overrun |= bytes[k] != poison;
    bytes.resize(load.bytes);
    return "\"encoded\": 0, \"arrived\": " + std::to_string(found.arrived) +
           ", \"bytes\": " + std::to_string(found.bytes) +
           ", \"overrun\": " + std::to_string(overrun) + ", \"block\": \"" +
           hexadecimal(bytes) + "\"";
  }

private:
  static std::string hexadecimal(const std::vector<uint8_t> &bytes) {
    const char *const digits = "0123456789abcdef";
    std::string text;
    for (uint8_t byte : bytes) {
      text += digits[byte >> 4];
      text += digits[byte & 15];
    }
    return text;
  }

  static constexpr uint32_t reservedBytes = 512; // for the barriers
  uint8_t *arena = nullptr, *block = nullptr;
  Answer *answer = nullptr;
  int sharedBytes = 0;
  decltype(&cuTensorMapEncodeIm2col) encode = nullptr;
  decltype(&cuGetErrorName) errorName = nullptr;
};

/// Why this machine cannot answer; empty if it can.
std::string obstacle() {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    return std::string("there is no CUDA device (") +
           cudaGetErrorString(error) + ")";
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "the device's properties");
  if (properties.major < 9)
    return std::string(properties.name) + " is of compute capability " +
           std::to_string(properties.major) + "." +
           std::to_string(properties.minor) + "; im2col mode begins at 9.0";
  return "";
}

} // namespace

int main(int argc, char **argv) {
  std::string name = argc > 1 ? argv[1] : "-";
  if (argc > 2 || name == "--help" || name == "-h") {
    (argc > 2 ? std::cerr : std::cout) << usage;
    return argc > 2 ? exitBadCase : 0;
  }
  std::string reason = obstacle();
  if (!reason.empty()) {
    std::cerr << "tma-im2col: " << reason
              << ". It asks the hardware, so it needs an NVIDIA GPU of the "
                 "Hopper generation or newer; answers recorded on one are "
                 "checked by python/test/gluon/test_im2col_oracle.py.\n";
    return exitNoGpu;
  }
  std::ifstream file;
  if (name != "-") {
    file.open(name);
    if (!file) {
      std::cerr << "tma-im2col: cannot read " << name << "\n";
      return exitBadCase;
    }
  }
  std::istream &input = name == "-" ? std::cin : file;
  size_t count = 0;
  std::string line;
  try {
    Oracle oracle;
    while (std::getline(input, line)) {
      ++count;
      std::string answer = oracle.ask(Case(line));
      std::cout << "{" << answer << "}" << std::endl;
    }
  } catch (const std::runtime_error &error) {
    std::cerr << "tma-im2col: case " << count << ": " << error.what() << "\n";
    return cudaPeekAtLastError() == cudaSuccess ? exitBadCase
                                                : exitLaunchFailed;
  }
  return 0;
}
