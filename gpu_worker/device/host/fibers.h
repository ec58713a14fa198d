// Switching between the stacks of fibers that belong to one OS thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Save the caller's registers on its stack and where that is in *save, and go on where `load` was saved.
extern "C" void vispark_switch(void** save, void* load);

#if defined(__x86_64__) && !defined(VISPARK_UCONTEXT)

asm(".text\n"
    ".globl vispark_switch\n"
    ".hidden vispark_switch\n"
    ".type vispark_switch,@function\n"
    "vispark_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size vispark_switch,.-vispark_switch\n");

// A stack on which the first switch enters `entry`, which must not return. `top` is 16-byte aligned.
static void* prepare_stack(char* bottom, char* top, void (*entry)()) {
    (void)bottom;
    void** frame = reinterpret_cast<void**>(top) - 8;  // six registers, the return address, the ABI's odd word
    for (int i = 0; i < 8; i++) frame[i] = nullptr;
    frame[6] = reinterpret_cast<void*>(entry);
    return frame;
}

#elif defined(__aarch64__) && !defined(VISPARK_UCONTEXT)

asm(".text\n"
    ".globl vispark_switch\n"
    ".hidden vispark_switch\n"
    ".type vispark_switch,%function\n"
    "vispark_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x2, sp\n  str x2, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size vispark_switch,.-vispark_switch\n");

static void* prepare_stack(char* bottom, char* top, void (*entry)()) {
    (void)bottom;
    void** frame = reinterpret_cast<void**>(top) - 20;
    for (int i = 0; i < 20; i++) frame[i] = nullptr;
    frame[11] = reinterpret_cast<void*>(entry);  // x30
    return frame;
}

#else

#include <ucontext.h>

extern "C" void vispark_switch(void** save, void* load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, static_cast<ucontext_t*>(load));
}

static void* prepare_stack(char* bottom, char* top, void (*entry)()) {
    size_t size = (sizeof(ucontext_t) + 63) & ~size_t(63);
    ucontext_t* context = reinterpret_cast<ucontext_t*>(top - size);
    getcontext(context);
    context->uc_link = nullptr;
    context->uc_stack.ss_sp = bottom;
    context->uc_stack.ss_size = static_cast<size_t>(top - size - bottom);
    makecontext(context, entry, 0);
    return context;
}

#endif
