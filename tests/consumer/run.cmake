# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD=... -DSOURCE=... -DWORK=... -DGENERATOR=... -DCOMPILER=... -DFLAGS=... -P run.cmake
# Installs Strata from BUILD into a temporary prefix, builds examples/train.cc against that alone, and trains 20 steps.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
  -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_PREFIX_PATH=${WORK}/prefix -DEXAMPLES=${SOURCE}/../../examples)
run(${CMAKE_COMMAND} --build ${WORK}/build)
file(READ ${SOURCE}/../../README.md text)
file(WRITE ${WORK}/corpus.txt "${text}")
file(WRITE ${WORK}/config.json [[{"model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 32, "n_layer": 1,
  "n_head": 2, "bos_token_id": 256, "eos_token_id": 256}]])
file(WRITE ${WORK}/config.toml "
[run]
directory = \"${WORK}/run\"
[model]
config = \"${WORK}/config.json\"
[data]
train = [\"${WORK}/corpus.txt\"]
[batch]
global = 2
[train]
max_steps = 20
")
run(${WORK}/build/consumer ${WORK}/config.toml)
if(NOT EXISTS ${WORK}/run/model/model.safetensors)
  message(FATAL_ERROR "the example wrote no model")
endif()
file(REMOVE_RECURSE ${WORK})
